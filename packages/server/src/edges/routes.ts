import { chatRoutes } from './quickstart/chat.ts';
import { quickstartAgentRoutes } from './quickstart/agents.ts';
import { execRoutes } from './sandbox/exec.ts';
import { logRoutes } from './sandbox/logs.ts';
import { sandboxFileRoutes } from './sandbox/files.ts';
import { sandboxRoutes } from './sandbox/sandboxes.ts';
import { snapshotRoutes } from './sandbox/snapshots.ts';
import { terminalRoutes } from './sandbox/terminal.ts';
import { channelRoutes } from './v1/channels.ts';
import { inboundEventRoutes } from './v1/inbound-events.ts';
import { agentRoutes } from './v1/agents.ts';
import { apiKeyRoutes } from './v1/api-keys.ts';
import { budgetRoutes } from './v1/budget.ts';
import { conversationRoutes } from './v1/conversations.ts';
import { deploymentRoutes } from './v1/deployments.ts';
import { egressRoutes } from './v1/egress.ts';
import { eventRoutes } from './v1/events.ts';
import { limitRoutes } from './v1/limits.ts';
import { runRoutes } from './v1/runs.ts';
import { scheduleRoutes } from './v1/schedules.ts';
import { secretRoutes } from './v1/secrets.ts';
import { webhookDeliveryRoutes } from './v1/webhook-deliveries.ts';
import { webhookEndpointRoutes } from './v1/webhook-endpoints.ts';

/** Every keyed call of the service, in the order of the documentation. A new noun adds one line here. */
export const routes = [
  ...quickstartAgentRoutes,
  ...chatRoutes,
  ...agentRoutes,
  ...apiKeyRoutes,
  ...secretRoutes,
  ...egressRoutes,
  ...channelRoutes,
  ...inboundEventRoutes,
  ...scheduleRoutes,
  ...webhookEndpointRoutes,
  ...webhookDeliveryRoutes,
  ...deploymentRoutes,
  ...conversationRoutes,
  ...runRoutes,
  ...eventRoutes,
  ...sandboxRoutes,
  ...execRoutes,
  ...logRoutes,
  ...terminalRoutes,
  ...sandboxFileRoutes,
  ...snapshotRoutes,
  ...budgetRoutes,
  ...limitRoutes,
];
