import type { ListOptions, Page } from './client.ts';
import type { RequestOptions } from './http.ts';
import type {
  WebhookDelivery,
  WebhookDeliveryDetail,
  WebhookEndpoint,
  WebhookEndpointCreate,
  WebhookEndpointUpdate,
  WebhookEndpointWithSecret,
} from './types.ts';

const id = encodeURIComponent;

/** Where the organisation is told of what happens, and what became of each telling. */
export function createWebhookEndpoints(
  json: <T>(method: string, path: string, request?: RequestOptions) => Promise<T>,
  list: <T>(path: string, noun: string, query?: ListOptions) => Promise<Page<T>>,
) {
  const path = (endpointId: string) => `/v1/webhook-endpoints/${id(endpointId)}`;
  const one = async (method: string, to: string, body?: object) =>
    (await json<{ endpoint: WebhookEndpoint }>(method, to, body === undefined ? {} : { body })).endpoint;
  const delivery = async (to: string) =>
    (await json<{ delivery: WebhookDelivery }>('POST', to, { body: {} })).delivery;

  return {
    webhookEndpoints: {
      list: (query?: ListOptions) => list<WebhookEndpoint>('/v1/webhook-endpoints', 'endpoints', query),
      get: (endpointId: string) => one('GET', path(endpointId)),
      create: (input: WebhookEndpointCreate) =>
        json<WebhookEndpointWithSecret>('POST', '/v1/webhook-endpoints', { body: input }),
      update: (endpointId: string, patch: WebhookEndpointUpdate) => one('PATCH', path(endpointId), patch),
      delete: (endpointId: string) => json<void>('DELETE', path(endpointId)),
      enable: (endpointId: string) => one('POST', `${path(endpointId)}/enable`, {}),
      disable: (endpointId: string) => one('POST', `${path(endpointId)}/disable`, {}),
      /** The secret before signs too for a day. */
      rotateSecret: (endpointId: string) =>
        json<WebhookEndpointWithSecret>('POST', `${path(endpointId)}/rotate-secret`, { body: {} }),
      /** Sends it an event that tells of nothing. */
      test: (endpointId: string) => delivery(`${path(endpointId)}/test`),
      deliveries: (endpointId: string, query?: ListOptions & { state?: WebhookDelivery['state'] }) =>
        list<WebhookDelivery>(`${path(endpointId)}/deliveries`, 'deliveries', query),
      delivery: (endpointId: string, deliveryId: string) =>
        json<WebhookDeliveryDetail>('GET', `${path(endpointId)}/deliveries/${id(deliveryId)}`),
      retry: (endpointId: string, deliveryId: string) =>
        delivery(`${path(endpointId)}/deliveries/${id(deliveryId)}/retry`),
      /** All that failed since then (ISO 8601); how many those are. */
      retrySince: async (endpointId: string, since: string) =>
        (await json<{ retried: number }>('POST', `${path(endpointId)}/retry`, { body: { since } })).retried,
    },
  };
}
