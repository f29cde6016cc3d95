import type { EventScope } from '../../services/api.ts';
import type { Call, Reply } from '../http/route.ts';
import { route } from '../http/route.ts';
import { invalidRequest } from '../http/validate.ts';
import { eventOf } from '../present/events.ts';
import { EventPage, eventQuery, readSeq } from '../schemas/event.ts';
import * as example from '../schemas/examples.ts';

const tag = 'Events';
const lastEventId = {
  name: 'Last-Event-ID',
  description: 'In a stream: the seq after which to go on. Wins over `after`.',
  example: '2',
};

interface EventQuery {
  limit: number;
  cursor: string | null;
  after: number | null;
}

const replies = {
  200: {
    description: 'A page of events, or the stream.',
    schema: EventPage,
    example: { events: example.events, nextCursor: null, hasMore: false },
    streamExample: example.eventStream,
  },
} satisfies Record<number, Reply>;

const howToRead =
  'JSON by default: newest first with `cursor`, or oldest first from `after`. With `Accept: text/event-stream` a stream that begins at the first event, or after `Last-Event-ID` (or `after`), with nothing missing and nothing twice.';

/** The client names streams in `Accept`, and does not like JSON better (RFC 9110, section 12.5.1). */
export function wantsStream(accept: string | undefined): boolean {
  if (accept === undefined) return false;
  const stream = weightOf('text/event-stream', accept);
  return stream > 0 && stream >= weightOf('application/json', accept);
}

/** 0 when it is not named. */
function weightOf(type: string, accept: string): number {
  for (const range of accept.toLowerCase().split(',')) {
    const [name, ...parameters] = range.split(';').map((part) => part.trim());
    if (name !== type) continue;
    const weight = Number(parameters.find((parameter) => parameter.startsWith('q='))?.slice(2) ?? 1);
    return Number.isFinite(weight) ? weight : 1;
  }
  return 0;
}

async function answerEvents(call: Call<unknown, EventQuery, unknown>, scope: EventScope) {
  const { services, caller, query } = call;
  if (call.canStream && wantsStream(call.header('accept'))) {
    const last = call.header('last-event-id');
    const after = last ? readSeq('Last-Event-ID', last.trim()) : (query.after ?? 0);
    return call.stream((sink) => services.events.follow(caller, scope, after, sink));
  }
  if (query.after === null) {
    const page = await services.events.list(caller, scope, query);
    const events = page.items.map(eventOf) as EventBodies;
    const body = { events, nextCursor: page.nextCursor, hasMore: page.nextCursor !== null };
    return { status: 200 as const, body };
  }
  if (query.cursor !== null) {
    throw invalidRequest([{ path: 'after', message: 'must not be given together with cursor' }]);
  }
  const found = await services.events.after(caller, scope, query.after, query.limit);
  const events = found.events.map(eventOf) as EventBodies;
  return { status: 200 as const, body: { events, nextCursor: null, hasMore: found.hasMore } };
}

type EventBodies = { seq: number; type: string; at: string; data: Record<string, unknown> }[];

export const eventRoutes = [
  route({
    id: 'listConversationEvents',
    method: 'get',
    path: '/v1/conversations/{conversationId}/events',
    tag,
    access: 'use',
    summary: "Read or follow a conversation's events",
    description: `${howToRead} The stream stays open.`,
    query: eventQuery,
    requestHeaders: [lastEventId],
    replies,
    handler: (call) => answerEvents(call, { conversationId: call.params.conversationId }),
  }),
  route({
    id: 'listRunEvents',
    method: 'get',
    path: '/v1/runs/{runId}/events',
    tag,
    access: 'use',
    summary: "Read or follow a run's events",
    description: `${howToRead} The stream ends with the run.`,
    query: eventQuery,
    requestHeaders: [lastEventId],
    replies,
    handler: (call) => answerEvents(call, { runId: call.params.runId }),
  }),
];
