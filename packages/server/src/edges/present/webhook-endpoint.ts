import type { WebhookEventType } from '../../domain/webhook-endpoint.ts';
import type {
  WebhookAttempt,
  WebhookDelivery,
  WebhookEndpoint,
} from '../../services/webhook-endpoints-api.ts';

export const endpointOf = (endpoint: WebhookEndpoint) => ({
  id: endpoint.id,
  name: endpoint.name,
  url: endpoint.url,
  events: endpoint.events as ('*' | WebhookEventType)[],
  agentId: endpoint.agentId,
  status: endpoint.status,
  disabledReason: endpoint.disabledReason,
  failingSince: endpoint.failingSince?.toISOString() ?? null,
  lastSuccessAt: endpoint.lastSuccessAt?.toISOString() ?? null,
  createdAt: endpoint.createdAt.toISOString(),
  updatedAt: endpoint.updatedAt.toISOString(),
});

export const deliveryOf = (delivery: WebhookDelivery) => ({
  id: delivery.id,
  endpointId: delivery.endpointId,
  type: delivery.type,
  at: delivery.at.toISOString(),
  agentId: delivery.agentId,
  conversationId: delivery.conversationId,
  runId: delivery.runId,
  seq: delivery.seq,
  state: delivery.state,
  attempts: delivery.attempts,
  nextAttemptAt: delivery.dueAt?.toISOString() ?? null,
  lastStatus: delivery.lastStatus,
  lastError: delivery.lastError,
  endedAt: delivery.endedAt?.toISOString() ?? null,
});

export const attemptOf = ({ at, ...attempt }: WebhookAttempt) => ({ ...attempt, at: at.toISOString() });
