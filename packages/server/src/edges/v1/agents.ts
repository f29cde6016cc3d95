import { agentJson, agentOf } from '../present/agent.ts';
import { route } from '../http/route.ts';
import { given } from '../http/given.ts';
import { AgentAnswer, AgentCreate, AgentPage, AgentUpdate } from '../schemas/agent.ts';
import { pageQuery } from '../schemas/basics.ts';
import * as example from '../schemas/examples.ts';

const tag = 'Agents';

export const agentRoutes = [
  route({
    id: 'listAgents',
    method: 'get',
    path: '/v1/agents',
    tag,
    access: 'use',
    summary: 'List agents',
    description: 'The agents that the key may see, newest first. An agent-bound key sees its own.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of agents.',
        schema: AgentPage,
        example: { agents: [example.agent], nextCursor: null },
      },
    },
    async handler({ services, caller, query, addresses }) {
      const page = await services.agents.list(caller, query);
      const agents = page.items.map((agent) => agentOf(agent, addresses));
      return { status: 200 as const, body: { agents, nextCursor: page.nextCursor } };
    },
  }),
  route({
    id: 'createAgent',
    method: 'post',
    path: '/v1/agents',
    tag,
    access: 'org-edit',
    summary: 'Create an agent',
    description:
      'Without `gitUrl` the service makes a repository with a starter AGENTS.md, to which you push. With one, it fetches from there.',
    body: AgentCreate,
    bodyExample: { name: example.agent.name, description: example.agent.description },
    replies: {
      201: {
        description: 'The new agent.',
        schema: AgentAnswer,
        example: { agent: example.agent },
        headers: { Location: 'Path of the agent.' },
      },
    },
    async handler({ services, caller, body, addresses }) {
      const agent = await services.agents.create(caller, given(body));
      return {
        status: 201 as const,
        body: { agent: agentOf(agent, addresses) },
        headers: { Location: `/v1/agents/${agent.id}` },
      };
    },
  }),
  route({
    id: 'getAgent',
    method: 'get',
    path: '/v1/agents/{id}',
    tag,
    access: 'use',
    summary: 'Get an agent',
    description: 'An agent that does not exist and one that is not yours to see give the same 404.',
    replies: {
      200: { description: 'The agent.', schema: AgentAnswer, example: { agent: example.agent } },
    },
    async handler({ services, caller, params, addresses }) {
      const agent = await services.agents.get(caller, params.id);
      return { status: 200 as const, body: { agent: agentOf(agent, addresses) } };
    },
    known({ services, caller, params, addresses }) {
      const agent = services.agents.known(caller, params['id'] ?? '');
      return agent && agentJson(agent, addresses);
    },
  }),
  route({
    id: 'updateAgent',
    method: 'patch',
    path: '/v1/agents/{id}',
    tag,
    access: 'edit',
    summary: 'Change an agent',
    description:
      'Only the given fields change. A new model takes effect with the next turn; a running turn ends on the old one.',
    body: AgentUpdate,
    bodyExample: { model: 'openai/gpt-5-mini' },
    replies: {
      200: { description: 'The changed agent.', schema: AgentAnswer, example: { agent: example.agent } },
    },
    async handler({ services, caller, params, body, addresses }) {
      const agent = await services.agents.update(caller, params.id, given(body));
      return { status: 200 as const, body: { agent: agentOf(agent, addresses) } };
    },
  }),
  route({
    id: 'deleteAgent',
    method: 'delete',
    path: '/v1/agents/{id}',
    tag,
    access: 'org-edit',
    summary: 'Delete an agent',
    description: 'Its running turns are cancelled, its keys revoked, its repository and workspace removed.',
    replies: { 204: { description: 'It is gone.', schema: null } },
    async handler({ services, caller, params }) {
      await services.agents.remove(caller, params.id);
      return { status: 204 as const };
    },
  }),
];
