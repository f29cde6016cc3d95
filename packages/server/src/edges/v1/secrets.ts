import { given } from '../http/given.ts';
import { route } from '../http/route.ts';
import { secretOf } from '../present/agent.ts';
import { pageQuery } from '../schemas/basics.ts';
import * as example from '../schemas/examples.ts';
import { SecretPage, SecretPut } from '../schemas/key.ts';

const tag = 'Secrets';

export const secretRoutes = [
  route({
    id: 'listSecrets',
    method: 'get',
    path: '/v1/agents/{agentId}/secrets',
    tag,
    access: 'edit',
    summary: "List an agent's secrets",
    description: 'Names, kinds and hosts. A value can be set and deleted, and is never returned.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of names.',
        schema: SecretPage,
        example: { secrets: [example.secret], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.secrets.list(caller, params.agentId, query);
      return {
        status: 200 as const,
        body: { secrets: page.items.map(secretOf), nextCursor: page.nextCursor },
      };
    },
  }),
  route({
    id: 'putSecret',
    method: 'put',
    path: '/v1/agents/{agentId}/secrets/{key}',
    tag,
    access: 'edit',
    summary: 'Set a secret',
    description:
      'Without `hosts` it is put into the environment of the sandbox (kind `env`): **the agent can read its value**, and ' +
      'so can every program that it runs. With `hosts` it is brokered: the sandbox never holds the value, only those ' +
      'hosts get it. Setting a new value rotates it: an `env` secret is there from the next turn on, a brokered one ' +
      'with the next request. A name that the service itself sets in the sandbox is refused, such as `PATH` or `HTTPS_PROXY`.',
    body: SecretPut,
    bodyExample: { value: 'ghp_exampleToken', hosts: ['api.github.com'] },
    replies: { 204: { description: 'It is set.', schema: null } },
    errors: ['conflict'],
    async handler({ services, caller, params, body }) {
      await services.secrets.put(caller, params.agentId, params.key, given(body));
      return { status: 204 as const };
    },
  }),
  route({
    id: 'deleteSecret',
    method: 'delete',
    path: '/v1/agents/{agentId}/secrets/{key}',
    tag,
    access: 'edit',
    summary: 'Delete a secret',
    description: 'From the next turn on it is gone.',
    replies: { 204: { description: 'It is deleted.', schema: null } },
    async handler({ services, caller, params }) {
      await services.secrets.remove(caller, params.agentId, params.key);
      return { status: 204 as const };
    },
  }),
];
