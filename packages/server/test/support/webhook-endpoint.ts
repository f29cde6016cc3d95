import type { Api } from './service.ts';
import { until } from './until.ts';

/** A URL whose host no resolver finds, and none is asked for: its first label is too long. */
export const nowhere = `https://${'a'.repeat(64)}.example/hook`;

export interface MadeEndpoint {
  endpointId: string;
  /** Of a test event that nobody took. */
  deliveryId: string;
}

/** A webhook endpoint that cannot be reached, and one delivery to it, of which an attempt was made. */
export async function endpointWithDelivery(call: Api): Promise<MadeEndpoint> {
  const made = await call('POST', '/v1/webhook-endpoints', {
    url: nowhere,
    events: ['webhook_endpoint.disabled'],
  });
  if (made.status !== 201) throw new Error(`No endpoint was made: ${made.status} ${made.text}`);
  const endpointId = made.body.endpoint.id as string;
  const tested = await call('POST', `/v1/webhook-endpoints/${endpointId}/test`, {});
  const deliveryId = tested.body.delivery.id as string;
  await until('an attempt was made', async () => {
    const found = await call('GET', `/v1/webhook-endpoints/${endpointId}/deliveries/${deliveryId}`);
    return found.body.delivery.attempts > 0;
  });
  return { endpointId, deliveryId };
}
