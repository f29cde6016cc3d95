/** Examples of the documentation, made of one small story so that ids fit each other. */
const agentId = '0197c2b4-6f7e-7c2a-9d51-3f0a1c9be842';
const conversationId = '0197c2b9-11d0-7b43-8a2e-5c6f0d9e7a31';
const runId = '0197c2b9-11d2-7f10-b6d4-90c1e2a3f5b7';
const deploymentId = '0197c2b5-02aa-7d19-a1c3-6b7e8f9012cd';
const messageId = '0197c2b9-1b44-7a02-9c88-2d4e6f8a0b13';
const keyId = '0197c2b6-4c31-7e55-8f07-1a2b3c4d5e6f';

export const agent = {
  id: agentId,
  name: 'Release notes',
  url: `https://${agentId}.agents.example.com`,
  description: 'Writes release notes from merged pull requests.',
  model: 'anthropic/claude-sonnet-4-5',
  gitUrl: `https://berth.example.com/git/${agentId}.git`,
  deploymentId,
  allowedOrigins: [],
  createdAt: '2026-11-28T09:30:00.000Z',
  updatedAt: '2026-11-28T09:31:12.480Z',
};

export const apiKey = {
  id: keyId,
  name: 'CI',
  prefix: 'svc_live_7Hq2Zx',
  scope: 'use' as const,
  binding: 'agent-bound' as const,
  agentId,
  lastUsedAt: null,
  expiresAt: null,
  createdAt: '2026-11-28T09:32:00.000Z',
};
export const orgKey = {
  ...apiKey,
  name: 'Deployments',
  scope: 'edit' as const,
  binding: 'org-bound' as const,
  agentId: null,
  lastUsedAt: '2026-11-28T10:02:00.000Z',
};
export const keyValue = 'svc_live_<49 letters and digits>';

export const secret = {
  key: 'GITHUB_TOKEN',
  kind: 'brokered' as const,
  hosts: ['api.github.com'],
  updatedAt: '2026-11-28T09:33:00.000Z',
};

export const deployment = {
  id: deploymentId,
  agentId,
  commit: '9fceb02d0ae598e95dc970b74767f19372d61af8',
  ref: 'main',
  source: 'push' as const,
  status: 'ready' as const,
  error: null,
  createdAt: '2026-11-28T09:31:10.000Z',
  activatedAt: '2026-11-28T09:31:12.480Z',
};

export const userMessage = {
  id: '0197c2b9-11d1-7c90-87aa-0f1e2d3c4b5a',
  agentId,
  conversationId,
  runId,
  role: 'user' as const,
  content: 'Write the notes for v2.4.',
  createdAt: '2026-11-28T09:40:00.016Z',
};
export const message = {
  ...userMessage,
  id: messageId,
  role: 'assistant' as const,
  content: 'Version 2.4 makes search twice as fast.',
  createdAt: '2026-11-28T09:40:02.372Z',
};

export const artifact = {
  artifactId: 'notes',
  name: 'notes.md',
  description: null,
  parts: [{ kind: 'file' as const, name: 'notes.md', mediaType: 'text/markdown', bytes: 'IyB2Mi40Cg==' }],
};

export const conversation = {
  id: conversationId,
  agentId,
  title: 'Write the notes for v2.4.',
  source: 'api',
  createdAt: '2026-11-28T09:40:00.016Z',
  lastMessageAt: '2026-11-28T09:40:02.372Z',
};

export const fork = {
  ...conversation,
  id: '0197c2c1-5a3e-7d04-92b7-8e1f0a2b3c4d',
  source: 'fork',
  createdAt: '2026-11-28T09:48:44.862Z',
};

export const usage = { inputTokens: 812, outputTokens: 24, cost: '0.002796' };

export const budget = {
  period: 'month' as const,
  limit: '25.000000',
  onExceeded: 'reject' as const,
  spent: '3.118406',
  reserved: '0.061440',
  resetsAt: '2026-12-01T00:00:00.000Z',
};

export const egress = {
  mode: 'list' as const,
  allow: ['api.example.com:443'],
  deny: [],
  presets: ['npm', 'github'],
  transparent: false,
  transparentPossible: true,
  isDefault: false,
  updatedAt: '2026-11-28T09:36:40.112Z',
};

export const egressRefusal = {
  host: 'registry.example',
  port: 443,
  reason: 'not_listed' as const,
  message: 'registry.example:443 is not on the list of hosts that this agent may reach.',
  count: 3,
  firstAt: '2026-11-28T09:40:01.200Z',
  lastAt: '2026-11-28T09:40:02.011Z',
  remedy: `berth egress allow ${agentId} registry.example:443`,
};

export const egressTraffic = {
  since: '2026-10-30',
  hosts: [{ host: 'registry.npmjs.org', sentBytes: 48_113, receivedBytes: 9_204_551, connections: 12 }],
};

export const run = {
  id: runId,
  agentId,
  conversationId,
  deploymentId,
  status: 'completed' as const,
  attempt: 1,
  error: null,
  usage,
  createdAt: '2026-11-28T09:40:00.016Z',
  startedAt: '2026-11-28T09:40:00.020Z',
  endedAt: '2026-11-28T09:40:02.372Z',
};
export const cancelledRun = { ...run, status: 'cancelled' as const };

export const send = { agentId, conversationId: null, content: userMessage.content };
export const sent = { agentId, conversationId, runId, status: 'completed' as const, message, usage };
export const accepted = { agentId, conversationId, runId, status: 'queued' as const, message: null };

export const events = [
  { seq: 1, type: 'message.created', at: '2026-11-28T09:40:00.016Z', data: { ...userMessage } },
  {
    seq: 2,
    type: 'run.queued',
    at: '2026-11-28T09:40:00.016Z',
    data: { runId, messageId: userMessage.id },
  },
  {
    seq: 3,
    type: 'message.delta',
    at: '2026-11-28T09:40:01.204Z',
    data: { runId, messageId, text: 'Version 2.4 makes ' },
  },
];

export const eventStream = events
  .map((event) => `id: ${event.seq}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
  .join('');

export const ids = { agentId, conversationId, runId, deploymentId, keyId };
