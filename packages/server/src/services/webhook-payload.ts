import type { DeliveryRow } from '../store/webhook-deliveries.ts';

/** What a run is after such an event. */
const statusAfter: Readonly<Record<string, string>> = {
  'run.queued': 'queued',
  'run.started': 'running',
  'run.awaiting_input': 'awaiting_input',
  'run.resumed': 'running',
  'run.retrying': 'running',
  'run.completed': 'completed',
  'run.failed': 'failed',
  'run.cancelled': 'cancelled',
};

/**
 * The body of a webhook (Standard Webhooks 1.0.0: `type`, `timestamp`, `data`): ids and states. What was said, and
 * whatever may hold a secret, is read from the API by whoever may.
 */
export function webhookBody(delivery: DeliveryRow): string {
  const { type, at } = delivery;
  return JSON.stringify({ type, timestamp: at.toISOString(), data: dataOf(delivery) });
}

function dataOf({ type, agentId, conversationId, runId, seq, data }: DeliveryRow): Record<string, unknown> {
  const status = statusAfter[type];
  if (status === undefined) return data;
  const error = data['error'] as { code?: string } | undefined;
  return {
    agentId,
    conversationId,
    runId,
    /** Of the event in its conversation: deliveries may come in any order, and more than once. */
    seq,
    status,
    ...pick(data, ['messageId', 'attempt', 'requestId']),
    ...(error?.code === undefined ? {} : { error: { code: error.code } }),
  };
}

function pick(data: Record<string, unknown>, names: string[]): Record<string, unknown> {
  return Object.fromEntries(names.filter((name) => data[name] != null).map((name) => [name, data[name]]));
}
