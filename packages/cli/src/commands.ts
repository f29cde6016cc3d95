import type { Command } from './command.ts';
import { login, whoami } from './commands/account.ts';
import { acp } from './commands/acp.ts';
import { agentCommands } from './commands/agents.ts';
import { budgetCommands } from './commands/budget.ts';
import { chat } from './commands/chat.ts';
import { deploy, deploymentCommands } from './commands/deploy.ts';
import { keyCommands } from './commands/keys.ts';
import { conversationCommands } from './commands/conversations.ts';
import { runExtraCommands } from './commands/run-extras.ts';
import { runCommands } from './commands/runs.ts';
import { secretCommands } from './commands/secrets.ts';
import { egressCommands } from './commands/egress.ts';
import { sandboxFileCommands } from './commands/sandbox-files.ts';
import { sandboxCommands } from './commands/sandbox.ts';
import { channelCommands } from './commands/channels.ts';
import { webhookCommands } from './commands/webhooks.ts';
import { scheduleCommands } from './commands/schedules.ts';
import { webhookEndpointCommands } from './commands/webhook-endpoints.ts';
import { snapshotCommands } from './commands/snapshots.ts';
import { terminal } from './commands/terminal.ts';

/** All commands of the service's API, in the order in which they are shown. */
export const commands: Command[] = [
  login,
  whoami,
  ...agentCommands,
  deploy,
  ...deploymentCommands,
  chat,
  acp,
  ...conversationCommands,
  ...runCommands,
  ...runExtraCommands,
  ...keyCommands,
  ...secretCommands,
  ...egressCommands,
  ...channelCommands,
  ...webhookCommands,
  ...scheduleCommands,
  ...webhookEndpointCommands,
  ...budgetCommands,
  ...sandboxCommands,
  ...sandboxFileCommands,
  ...snapshotCommands,
  terminal,
];
