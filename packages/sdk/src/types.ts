/** The nouns of the public API (`openapi.json`). Unknown fields and event types may appear and are to be ignored. */

export interface Agent {
  id: string;
  name: string;
  url: string;
  description: string;
  model: string;
  gitUrl: string;
  createdAt: string;
  updatedAt: string;
  deploymentId: string | null;
}

export interface ApiKey {
  id: string;
  name: string;
  prefix: string;
  scope: 'use' | 'edit';
  binding: 'agent-bound' | 'org-bound';
  agentId: string | null;
  lastUsedAt: string | null;
  expiresAt: string | null;
  createdAt: string;
}

export interface Secret {
  key: string;
}

export interface Deployment {
  id: string;
  agentId: string;
  commit: string | null;
  ref: string;
  source: string;
  status: 'pending' | 'ready' | 'failed';
  error: string | null;
  createdAt: string;
  activatedAt: string | null;
}

export interface Conversation {
  id: string;
  agentId: string;
  title: string;
  source: string;
  createdAt: string;
  lastMessageAt: string;
}

export interface Message {
  id: string;
  agentId: string;
  conversationId: string;
  runId: string;
  role: 'user' | 'assistant';
  content: string;
  createdAt: string;
}

export type RunStatus = 'queued' | 'running' | 'awaiting_input' | 'completed' | 'failed' | 'cancelled';

export interface Usage {
  inputTokens: number;
  outputTokens: number;
  cost: string;
}

export interface RunError {
  error: string;
  code: string;
}

export interface Run {
  id: string;
  agentId: string;
  conversationId: string;
  deploymentId: string | null;
  status: RunStatus;
  attempt: number;
  error: RunError | null;
  usage: Usage;
  createdAt: string;
  startedAt: string | null;
  endedAt: string | null;
}

export interface Event {
  seq: number;
  type: string;
  at: string;
  data: Record<string, unknown>;
}

export interface SendResult {
  agentId: string;
  conversationId: string;
  runId: string;
  status: RunStatus;
  message: Message | null;
  usage?: Usage;
  error?: RunError;
}

export interface Limits {
  [field: string]: unknown;
}
