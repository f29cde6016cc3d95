import { readTime } from '../http/read-time.ts';
import { route } from '../http/route.ts';
import { inboundEventOf } from '../present/channel.ts';
import { pageQuery } from '../schemas/basics.ts';
import { given } from '../http/given.ts';
import {
  InboundEventAnswer,
  inboundEventExample,
  InboundEventPage,
  InboundReplayed,
  InboundReplaySend,
} from '../schemas/channel.ts';

const tag = 'Channels';
const one = { schema: InboundEventAnswer, example: { event: inboundEventExample } };

export const inboundEventRoutes = [
  route({
    id: 'listInboundEvents',
    method: 'get',
    path: '/v1/agents/{agentId}/inbound-events',
    tag,
    access: 'use',
    summary: 'List what came in for an agent',
    description: 'Newest first, with what became of it.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of events.',
        schema: InboundEventPage,
        example: { events: [inboundEventExample], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.inboundEvents.list(caller, params.agentId, query);
      return {
        status: 200 as const,
        body: { events: page.items.map(inboundEventOf), nextCursor: page.nextCursor },
      };
    },
  }),
  route({
    id: 'getInboundEvent',
    method: 'get',
    path: '/v1/inbound-events/{inboundEventId}',
    tag,
    access: 'use',
    summary: 'Get an inbound event',
    description: 'With every state that it had.',
    replies: { 200: { ...one, description: 'The event.' } },
    async handler({ services, caller, params }) {
      const event = await services.inboundEvents.get(caller, params.inboundEventId);
      return { status: 200 as const, body: { event: inboundEventOf(event) } };
    },
  }),
  route({
    id: 'replayInboundEvent',
    method: 'post',
    path: '/v1/inbound-events/{inboundEventId}/replay',
    tag,
    access: 'edit',
    summary: 'Work on an inbound event again',
    description:
      'For one that was ignored, failed or is dead, for example after the settings of its channel were changed. Messages of its answer that were sent are not sent again; one that may have been sent is.',
    replies: { 200: { ...one, description: 'The event, queued.' } },
    errors: ['conflict'],
    async handler({ services, caller, params }) {
      const event = await services.inboundEvents.replay(caller, params.inboundEventId);
      return { status: 200 as const, body: { event: inboundEventOf(event) } };
    },
  }),
  route({
    id: 'replayInboundEvents',
    method: 'post',
    path: '/v1/agents/{agentId}/inbound-events/replay',
    tag,
    access: 'edit',
    summary: 'Work again on all that failed',
    description:
      'All that failed or is dead, since a time. What is queued already is not queued twice. Events whose answer may have been sent are left out.',
    body: InboundReplaySend,
    bodyExample: { since: '2026-11-28T09:00:00.000Z' },
    replies: {
      200: {
        description: 'How many.',
        schema: InboundReplayed,
        example: { replayed: 12, left: 0, doubtful: 0 },
      },
    },
    async handler({ services, caller, params, body }) {
      const { since, channelId = null } = given(body);
      const told = await services.inboundEvents.replayFailed(caller, params.agentId, {
        since: readTime('since', since),
        channelId,
      });
      return { status: 200 as const, body: told };
    },
  }),
];
