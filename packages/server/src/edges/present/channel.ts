import type { Channel } from '../../services/channels-api.ts';
import type { InboundEventRow } from '../../services/inbound-events.ts';

export const channelOf = (channel: Channel, baseUrl: string) => ({
  id: channel.id,
  agentId: channel.agentId,
  kind: channel.kind,
  name: channel.name,
  status: channel.status,
  webhookUrl: `${baseUrl}/api/webhooks/${channel.kind}/${channel.id}`,
  settings: channel.settings,
  credentialsSet: channel.credentialsSet,
  apiBaseUrl: channel.apiBaseUrl,
  lastEventAt: channel.lastEventAt?.toISOString() ?? null,
  lastError: channel.lastError,
  createdAt: channel.createdAt.toISOString(),
});

export const inboundEventOf = (event: InboundEventRow) => ({
  id: event.id,
  channelId: event.channelId,
  agentId: event.agentId,
  kind: event.kind,
  state: event.state,
  reason: event.reason,
  duplicateOf: event.duplicateOf,
  joinedTo: event.joinedTo,
  retryCount: event.retryCount,
  conversationId: event.conversationId,
  runId: event.runId,
  receivedAt: event.receivedAt.toISOString(),
  history: event.history,
});
