import { limits } from '../../domain/limits.ts';
import { given } from '../http/given.ts';
import { route } from '../http/route.ts';
import { endpointOf } from '../present/webhook-endpoint.ts';
import { pageQuery } from '../schemas/basics.ts';
import {
  endpointExample,
  WebhookEndpointAnswer,
  WebhookEndpointCreate,
  WebhookEndpointPage,
  WebhookEndpointUpdate,
  WebhookEndpointWithSecret,
} from '../schemas/webhook-endpoint.ts';

const tag = 'Webhook endpoints';
const one = { schema: WebhookEndpointAnswer, example: { endpoint: endpointExample } };
const withSecret = {
  schema: WebhookEndpointWithSecret,
  example: { endpoint: endpointExample, secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' },
};

export const webhookEndpointRoutes = [
  route({
    id: 'listWebhookEndpoints',
    method: 'get',
    path: '/v1/webhook-endpoints',
    tag,
    access: 'org-edit',
    summary: "List the organisation's webhook endpoints",
    description: 'Newest first.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of endpoints.',
        schema: WebhookEndpointPage,
        example: { endpoints: [endpointExample], nextCursor: null },
      },
    },
    async handler({ services, caller, query }) {
      const page = await services.webhookEndpoints.list(caller, query);
      return {
        status: 200 as const,
        body: { endpoints: page.items.map(endpointOf), nextCursor: page.nextCursor },
      };
    },
  }),
  route({
    id: 'createWebhookEndpoint',
    method: 'post',
    path: '/v1/webhook-endpoints',
    tag,
    access: 'org-edit',
    summary: 'Be told of what happens',
    description:
      'Events are posted there, signed as in Standard Webhooks with the secret of the answer, until a 2xx says that they were taken: at least once, in any order.',
    showsSecret: true,
    body: WebhookEndpointCreate,
    bodyExample: { url: 'https://hooks.example.com/berth', events: ['run.completed', 'run.failed'] },
    replies: {
      201: {
        ...withSecret,
        description: 'The endpoint and its secret.',
        headers: { Location: 'Path of the endpoint.' },
      },
    },
    errors: ['conflict'],
    // The name of its host is looked up.
    idempotency: 'lease',
    async handler({ services, caller, body }) {
      const { endpoint, secret } = await services.webhookEndpoints.create(caller, given(body));
      return {
        status: 201 as const,
        body: { endpoint: endpointOf(endpoint), secret },
        headers: { Location: `/v1/webhook-endpoints/${endpoint.id}` },
        secretOf: endpoint.id,
      };
    },
  }),
  route({
    id: 'getWebhookEndpoint',
    method: 'get',
    path: '/v1/webhook-endpoints/{endpointId}',
    tag,
    access: 'org-edit',
    summary: 'Get a webhook endpoint',
    description: 'Without its secret.',
    replies: { 200: { ...one, description: 'The endpoint.' } },
    async handler({ services, caller, params }) {
      const endpoint = await services.webhookEndpoints.get(caller, params.endpointId);
      return { status: 200 as const, body: { endpoint: endpointOf(endpoint) } };
    },
  }),
  route({
    id: 'updateWebhookEndpoint',
    method: 'patch',
    path: '/v1/webhook-endpoints/{endpointId}',
    tag,
    access: 'org-edit',
    summary: 'Change a webhook endpoint',
    description: 'What was not sent yet goes to the new URL.',
    body: WebhookEndpointUpdate,
    bodyExample: { events: ['*'] },
    replies: { 200: { ...one, description: 'The endpoint as it is now.' } },
    async handler({ services, caller, params, body }) {
      const endpoint = await services.webhookEndpoints.update(caller, params.endpointId, given(body));
      return { status: 200 as const, body: { endpoint: endpointOf(endpoint) } };
    },
  }),
  route({
    id: 'deleteWebhookEndpoint',
    method: 'delete',
    path: '/v1/webhook-endpoints/{endpointId}',
    tag,
    access: 'org-edit',
    summary: 'Delete a webhook endpoint',
    description: 'With its deliveries, also those that were not sent yet.',
    replies: { 204: { description: 'It is gone.', schema: null } },
    async handler({ services, caller, params }) {
      await services.webhookEndpoints.remove(caller, params.endpointId);
      return { status: 204 as const };
    },
  }),
  ...(['enable', 'disable'] as const).map((action) =>
    route({
      id: action === 'enable' ? 'enableWebhookEndpoint' : 'disableWebhookEndpoint',
      method: 'post',
      path:
        action === 'enable'
          ? '/v1/webhook-endpoints/{endpointId}/enable'
          : '/v1/webhook-endpoints/{endpointId}/disable',
      tag,
      access: 'org-edit',
      summary: action === 'enable' ? 'Enable a webhook endpoint' : 'Disable a webhook endpoint',
      description:
        action === 'enable'
          ? 'It is told of what happens from now on, and gets what was held.'
          : 'It is told of nothing any more; what was not sent yet is held.',
      replies: { 200: { ...one, description: 'The endpoint as it is now.' } },
      async handler({ services, caller, params }) {
        const endpoint = await services.webhookEndpoints[action](caller, params.endpointId);
        return { status: 200 as const, body: { endpoint: endpointOf(endpoint) } };
      },
    }),
  ),
  route({
    id: 'rotateWebhookEndpointSecret',
    method: 'post',
    path: '/v1/webhook-endpoints/{endpointId}/rotate-secret',
    tag,
    access: 'org-edit',
    summary: 'Change the signing secret',
    description: `The secret before signs too for ${limits.previousSecretHours} hours.`,
    showsSecret: true,
    replies: { 200: { ...withSecret, description: 'The endpoint and its new secret.' } },
    async handler({ services, caller, params }) {
      const { endpoint, secret } = await services.webhookEndpoints.rotateSecret(caller, params.endpointId);
      return {
        status: 200 as const,
        body: { endpoint: endpointOf(endpoint), secret },
        secretOf: endpoint.id,
      };
    },
  }),
];
