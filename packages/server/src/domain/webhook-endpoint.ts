/** Where an organisation is told of what happens (API contract, section 5). */

/** As in the log of a conversation; a trigger writes each of them to the outbox with its event. */
export const toldRunEvents = [
  'run.queued',
  'run.started',
  'run.awaiting_input',
  'run.resumed',
  'run.retrying',
  'run.completed',
  'run.failed',
  'run.cancelled',
] as const;

/** `*` stands for all of them. */
export const webhookEventTypes = [...toldRunEvents, 'webhook_endpoint.disabled'] as const;
export type WebhookEventType = (typeof webhookEventTypes)[number];

/** Sent when somebody asks for it, whatever the endpoint wants to hear of. */
export const testEventType = 'webhook_endpoint.test';

export type EndpointStatus = 'enabled' | 'disabled';
/** `failing`: nothing was taken for days. `gone`: it answered 410. Null: a caller disabled it. */
export type DisabledReason = 'failing' | 'gone';
export const deliveryStates = ['pending', 'delivered', 'failed'] as const;
export type DeliveryState = (typeof deliveryStates)[number];

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

/** Between one attempt and the next; after the last of them the delivery has failed. */
export const retryDelaysMs = [
  5_000,
  5 * minuteMs,
  30 * minuteMs,
  2 * hourMs,
  5 * hourMs,
  10 * hourMs,
  14 * hourMs,
  20 * hourMs,
  24 * hourMs,
] as const;

/** Milliseconds until the next attempt; null: there is none. `random` is from 0 to 1, `askedMs` what the receiver asked for. */
export function retryDelay(attempts: number, askedMs: number | null, random: number): number | null {
  const usual = retryDelaysMs[attempts - 1];
  if (usual === undefined) return null;
  const spread = Math.round(usual * (0.8 + 0.4 * random));
  return Math.max(spread, Math.min(askedMs ?? 0, 24 * hourMs));
}
