import { limits } from '../../domain/limits.ts';
import { route } from '../http/route.ts';
import { agentOf } from '../present/agent.ts';
import { AgentArray } from '../schemas/agent.ts';
import { pageQuery } from '../schemas/basics.ts';
import * as example from '../schemas/examples.ts';

export const quickstartAgentRoutes = [
  route({
    id: 'quickstartAgents',
    method: 'get',
    path: '/api/v2/agents',
    tag: 'Quick start',
    access: 'use',
    summary: 'List agents as a bare array',
    description: 'The same agents as `GET /v1/agents`. The next page is in the `Link` header.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of agents.',
        schema: AgentArray,
        example: [example.agent],
        headers: { Link: 'The next page, as `<…>; rel="next"`; absent at the end.' },
      },
    },
    async handler({ services, caller, query, addresses }) {
      const page = await services.agents.list(caller, query);
      const body = page.items.map((agent) => agentOf(agent, addresses));
      if (page.nextCursor === null) return { status: 200 as const, body };
      const next = new URLSearchParams({ cursor: page.nextCursor });
      if (query.limit !== limits.pageDefault) next.set('limit', String(query.limit));
      const headers = { Link: `<${addresses.baseUrl}/api/v2/agents?${next}>; rel="next"` };
      return { status: 200 as const, body, headers };
    },
  }),
];
