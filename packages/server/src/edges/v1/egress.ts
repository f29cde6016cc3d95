import type { EgressView } from '../../services/api.ts';
import { route } from '../http/route.ts';
import { pageQuery } from '../schemas/basics.ts';
import { EgressAnswer, EgressPut, EgressRefusalPage, EgressTraffic } from '../schemas/egress.ts';
import * as example from '../schemas/examples.ts';

const tag = 'Egress';
const reply = (description: string) => ({
  200: { description, schema: EgressAnswer, example: { egress: example.egress } },
});

export const egressRoutes = [
  route({
    id: 'getEgress',
    method: 'get',
    path: '/v1/agents/{agentId}/egress',
    tag,
    access: 'use',
    summary: 'Get what an agent may reach',
    description: "Its owner's policy for the network, or the installation's default.",
    replies: reply('The policy.'),
    async handler({ services, caller, params }) {
      return { status: 200 as const, body: egressOf(await services.egress.get(caller, params.agentId)) };
    },
  }),
  route({
    id: 'putEgress',
    method: 'put',
    path: '/v1/agents/{agentId}/egress',
    tag,
    access: 'edit',
    summary: 'Set what an agent may reach',
    description:
      'Replaces the whole policy; lists that are left out are empty. It holds for the next connection, without another ' +
      'sandbox, and open connections to what is no longer allowed are cut.',
    body: EgressPut,
    bodyExample: { mode: 'list', allow: ['api.example.com:443'], presets: ['npm', 'github'] },
    replies: reply('The policy as it is now.'),
    async handler({ services, caller, params, body }) {
      const { mode, allow = [], deny = [], presets = [], transparent = false } = body;
      const policy = { mode, allow, deny, presets, transparent };
      return {
        status: 200 as const,
        body: egressOf(await services.egress.put(caller, params.agentId, policy)),
      };
    },
  }),
  route({
    id: 'deleteEgress',
    method: 'delete',
    path: '/v1/agents/{agentId}/egress',
    tag,
    access: 'edit',
    summary: "Return to the installation's default",
    description: 'Holds for the next connection.',
    replies: { 204: { description: 'The agent has the default.', schema: null } },
    async handler({ services, caller, params }) {
      await services.egress.remove(caller, params.agentId);
      return { status: 204 as const };
    },
  }),
  route({
    id: 'listEgressRefusals',
    method: 'get',
    path: '/v1/agents/{agentId}/egress/refusals',
    tag,
    access: 'use',
    summary: 'List connections that were refused',
    description:
      'One entry for each host, port and reason, counted; what was first refused last comes first. They are written within ' +
      'about a second. The kinds that were not seen for the longest time go when there are too many.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of refusals.',
        schema: EgressRefusalPage,
        example: { refusals: [example.egressRefusal], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.egress.refusals(caller, params.agentId, query);
      const refusals = page.items.map(({ host, port, reason, message, count, firstAt, lastAt, remedy }) => ({
        ...{ host, port, reason, message, count, remedy },
        firstAt: firstAt.toISOString(),
        lastAt: lastAt.toISOString(),
      }));
      return { status: 200 as const, body: { refusals, nextCursor: page.nextCursor } };
    },
  }),
  route({
    id: 'getEgressTraffic',
    method: 'get',
    path: '/v1/agents/{agentId}/egress/traffic',
    tag,
    access: 'use',
    summary: 'Get bytes by host',
    description:
      'Of the last 30 days (UTC), the present one included. They are written every 15 seconds or so.',
    replies: {
      200: {
        description: 'The hosts with the most bytes.',
        schema: EgressTraffic,
        example: example.egressTraffic,
      },
    },
    async handler({ services, caller, params }) {
      return { status: 200 as const, body: await services.egress.traffic(caller, params.agentId) };
    },
  }),
];

function egressOf(view: EgressView) {
  const { mode, allow, deny, presets, transparent, transparentPossible, isDefault, updatedAt } = view;
  return {
    egress: {
      ...{ mode, allow, deny, presets, transparent, transparentPossible, isDefault },
      updatedAt: updatedAt?.toISOString() ?? null,
    },
  };
}
