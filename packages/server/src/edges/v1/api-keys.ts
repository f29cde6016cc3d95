import { given } from '../http/given.ts';
import { route } from '../http/route.ts';
import { apiKeyOf } from '../present/agent.ts';
import { pageQuery } from '../schemas/basics.ts';
import * as example from '../schemas/examples.ts';
import { AgentKeyCreate, ApiKeyCreate, ApiKeyMinted, ApiKeyPage } from '../schemas/key.ts';

const tag = 'API keys';

export const apiKeyRoutes = [
  route({
    id: 'listAgentKeys',
    method: 'get',
    path: '/v1/agents/{agentId}/api-keys',
    tag,
    access: 'edit',
    summary: "List an agent's keys",
    description: 'The active keys that are bound to the agent, newest first. A value is never among them.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of keys.',
        schema: ApiKeyPage,
        example: { keys: [example.apiKey], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.apiKeys.listForAgent(caller, params.agentId, query);
      return { status: 200 as const, body: { keys: page.items.map(apiKeyOf), nextCursor: page.nextCursor } };
    },
  }),
  route({
    id: 'createAgentKey',
    method: 'post',
    path: '/v1/agents/{agentId}/api-keys',
    tag,
    access: 'edit',
    summary: 'Mint a key for an agent',
    description:
      'The key is always agent-bound with the scope `use`. Its value is in this answer only, and in its replay by `Idempotency-Key` until the key is revoked.',
    body: AgentKeyCreate,
    showsSecret: true,
    bodyExample: { name: example.apiKey.name },
    replies: {
      201: {
        description: 'The key, and its value once.',
        schema: ApiKeyMinted,
        example: { key: example.apiKey, value: example.keyValue },
      },
    },
    async handler({ services, caller, params, body }) {
      const minted = await services.apiKeys.mintForAgent(caller, params.agentId, body);
      const { key, value } = minted;
      return { status: 201 as const, body: { key: apiKeyOf(key), value }, secretOf: key.id };
    },
  }),
  route({
    id: 'revokeAgentKey',
    method: 'delete',
    path: '/v1/agents/{agentId}/api-keys/{keyId}',
    tag,
    access: 'edit',
    summary: "Revoke an agent's key",
    description: 'It stops working at once, everywhere within a second.',
    replies: { 204: { description: 'It is revoked.', schema: null } },
    async handler({ services, caller, params }) {
      await services.apiKeys.revokeForAgent(caller, params.agentId, params.keyId);
      return { status: 204 as const };
    },
  }),
  route({
    id: 'listKeys',
    method: 'get',
    path: '/v1/api-keys',
    tag,
    access: 'org-edit',
    summary: 'List the org-bound keys',
    description: 'The active org-bound keys of the organisation, newest first, without their values.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of keys.',
        schema: ApiKeyPage,
        example: { keys: [example.orgKey], nextCursor: null },
      },
    },
    async handler({ services, caller, query }) {
      const page = await services.apiKeys.list(caller, query);
      return { status: 200 as const, body: { keys: page.items.map(apiKeyOf), nextCursor: page.nextCursor } };
    },
  }),
  route({
    id: 'createKey',
    method: 'post',
    path: '/v1/api-keys',
    tag,
    access: 'org-edit',
    summary: 'Mint any key',
    description:
      'With any scope and binding. An `agent-bound` key needs `agentId`; its value is in this answer only, and in its replay by `Idempotency-Key` until the key is revoked or has expired.',
    body: ApiKeyCreate,
    showsSecret: true,
    bodyExample: { name: example.orgKey.name, scope: 'edit', binding: 'org-bound' },
    replies: {
      201: {
        description: 'The key, and its value once.',
        schema: ApiKeyMinted,
        example: { key: example.orgKey, value: example.keyValue },
      },
    },
    errors: ['not_found'],
    async handler({ services, caller, body }) {
      const { expiresAt, ...rest } = given(body);
      const input = expiresAt === undefined ? rest : { ...rest, expiresAt: new Date(expiresAt) };
      const minted = await services.apiKeys.mint(caller, input);
      const { key, value } = minted;
      return { status: 201 as const, body: { key: apiKeyOf(key), value }, secretOf: key.id };
    },
  }),
  route({
    id: 'revokeKey',
    method: 'delete',
    path: '/v1/api-keys/{id}',
    tag,
    access: 'org-edit',
    summary: 'Revoke any key',
    description: 'It stops working at once, everywhere within a second.',
    replies: { 204: { description: 'It is revoked.', schema: null } },
    async handler({ services, caller, params }) {
      await services.apiKeys.revoke(caller, params.id);
      return { status: 204 as const };
    },
  }),
];
