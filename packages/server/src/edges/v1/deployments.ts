import { given } from '../http/given.ts';
import { route } from '../http/route.ts';
import { deploymentOf } from '../present/agent.ts';
import { pageQuery } from '../schemas/basics.ts';
import { DeploymentAnswer, DeploymentCreate, DeploymentPage } from '../schemas/deployment.ts';
import * as example from '../schemas/examples.ts';

const tag = 'Deployments';
const one = { schema: DeploymentAnswer, example: { deployment: example.deployment } };

export const deploymentRoutes = [
  route({
    id: 'listDeployments',
    method: 'get',
    path: '/v1/agents/{agentId}/deployments',
    tag,
    access: 'use',
    summary: "List an agent's deployments",
    description: 'Newest first.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of deployments.',
        schema: DeploymentPage,
        example: { deployments: [example.deployment], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.deployments.list(caller, params.agentId, query);
      const deployments = page.items.map(deploymentOf);
      return { status: 200 as const, body: { deployments, nextCursor: page.nextCursor } };
    },
  }),
  route({
    id: 'createDeployment',
    method: 'post',
    path: '/v1/agents/{agentId}/deployments',
    tag,
    access: 'edit',
    summary: 'Deploy',
    description:
      'Resolves the ref (an external repository is fetched first), checks the commit and makes it the active one. Answers when it is ready or has failed; `status` tells which.',
    body: DeploymentCreate,
    bodyExample: { ref: 'main' },
    idempotency: 'lease',
    replies: {
      201: {
        ...one,
        description: 'The deployment.',
        headers: { Location: 'Path of the deployment.' },
      },
    },
    async handler({ services, caller, params, body }) {
      const deployment = await services.deployments.create(caller, params.agentId, given(body));
      return {
        status: 201 as const,
        body: { deployment: deploymentOf(deployment) },
        headers: { Location: `/v1/agents/${deployment.agentId}/deployments/${deployment.id}` },
      };
    },
  }),
  route({
    id: 'getDeployment',
    method: 'get',
    path: '/v1/agents/{agentId}/deployments/{deploymentId}',
    tag,
    access: 'use',
    summary: 'Get a deployment',
    description: 'Its commit, status and, when it failed, why.',
    replies: { 200: { ...one, description: 'The deployment.' } },
    async handler({ services, caller, params }) {
      const deployment = await services.deployments.get(caller, params.agentId, params.deploymentId);
      return { status: 200 as const, body: { deployment: deploymentOf(deployment) } };
    },
  }),
  route({
    id: 'activateDeployment',
    method: 'post',
    path: '/v1/agents/{agentId}/deployments/{deploymentId}/activate',
    tag,
    access: 'edit',
    summary: 'Roll back or forward',
    description: 'Makes a ready deployment the active one. Running turns end on the version they began with.',
    idempotency: 'repeatable',
    replies: { 200: { ...one, description: 'The deployment, now active.' } },
    errors: ['conflict'],
    async handler({ services, caller, params }) {
      const deployment = await services.deployments.activate(caller, params.agentId, params.deploymentId);
      return { status: 200 as const, body: { deployment: deploymentOf(deployment) } };
    },
  }),
];
