import { limits } from '../../domain/limits.ts';
import { route } from '../http/route.ts';
import { attemptOf, deliveryOf } from '../present/webhook-endpoint.ts';
import {
  attemptExample,
  deliveryExample,
  deliveryQuery,
  WebhookDeliveryAnswer,
  WebhookDeliveryDetail,
  WebhookDeliveryPage,
  WebhookRetried,
  WebhookRetrySend,
} from '../schemas/webhook-endpoint.ts';

const tag = 'Webhook endpoints';
const one = { schema: WebhookDeliveryAnswer, example: { delivery: deliveryExample } };
const waiting = { ...deliveryExample, state: 'pending', attempts: 0, lastStatus: null, endedAt: null };

export const webhookDeliveryRoutes = [
  route({
    id: 'testWebhookEndpoint',
    method: 'post',
    path: '/v1/webhook-endpoints/{endpointId}/test',
    tag,
    access: 'org-edit',
    summary: 'Send a test event',
    description: 'Of the type `webhook_endpoint.test`, signed and repeated like any other.',
    replies: {
      200: {
        ...one,
        description: 'Its delivery; look again for what became of it.',
        example: { delivery: { ...waiting, type: 'webhook_endpoint.test' } },
      },
    },
    errors: ['conflict'],
    async handler({ services, caller, params }) {
      const delivery = await services.webhookEndpoints.test(caller, params.endpointId);
      return { status: 200 as const, body: { delivery: deliveryOf(delivery) } };
    },
  }),
  route({
    id: 'listWebhookDeliveries',
    method: 'get',
    path: '/v1/webhook-endpoints/{endpointId}/deliveries',
    tag,
    access: 'org-edit',
    summary: 'List what an endpoint was told of',
    description: `Newest first, kept for ${limits.webhookDeliveryDays} days.`,
    query: deliveryQuery,
    replies: {
      200: {
        description: 'A page of deliveries.',
        schema: WebhookDeliveryPage,
        example: { deliveries: [deliveryExample], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const { state, ...page } = query;
      const found = await services.webhookEndpoints.deliveries(
        caller,
        params.endpointId,
        page,
        state ?? null,
      );
      return {
        status: 200 as const,
        body: { deliveries: found.items.map(deliveryOf), nextCursor: found.nextCursor },
      };
    },
  }),
  route({
    id: 'getWebhookDelivery',
    method: 'get',
    path: '/v1/webhook-endpoints/{endpointId}/deliveries/{deliveryId}',
    tag,
    access: 'org-edit',
    summary: 'Get a delivery and its attempts',
    description: 'With what the receiver answered.',
    replies: {
      200: {
        description: 'The delivery and its attempts.',
        schema: WebhookDeliveryDetail,
        example: { delivery: deliveryExample, attempts: [attemptExample] },
      },
    },
    async handler({ services, caller, params }) {
      const { endpointId, deliveryId } = params;
      const { delivery, attempts } = await services.webhookEndpoints.delivery(caller, endpointId, deliveryId);
      return {
        status: 200 as const,
        body: { delivery: deliveryOf(delivery), attempts: attempts.map(attemptOf) },
      };
    },
  }),
  route({
    id: 'retryWebhookDelivery',
    method: 'post',
    path: '/v1/webhook-endpoints/{endpointId}/deliveries/{deliveryId}/retry',
    tag,
    access: 'org-edit',
    summary: 'Send an event again',
    description: 'At once, whatever became of it, under the same `webhook-id`.',
    replies: { 200: { ...one, description: 'The delivery as it is now.', example: { delivery: waiting } } },
    errors: ['conflict'],
    async handler({ services, caller, params }) {
      const { endpointId, deliveryId } = params;
      const delivery = await services.webhookEndpoints.retry(caller, endpointId, deliveryId);
      return { status: 200 as const, body: { delivery: deliveryOf(delivery) } };
    },
  }),
  route({
    id: 'retryWebhookDeliveries',
    method: 'post',
    path: '/v1/webhook-endpoints/{endpointId}/retry',
    tag,
    access: 'org-edit',
    summary: 'Send again what failed',
    description: 'Every delivery that failed and whose event is not older than `since`.',
    body: WebhookRetrySend,
    bodyExample: { since: '2026-11-27T00:00:00Z' },
    replies: {
      200: { description: 'How many those are.', schema: WebhookRetried, example: { retried: 12 } },
    },
    errors: ['conflict'],
    async handler({ services, caller, params, body }) {
      const since = new Date(body.since);
      const retried = await services.webhookEndpoints.retrySince(caller, params.endpointId, since);
      return { status: 200 as const, body: { retried } };
    },
  }),
];
