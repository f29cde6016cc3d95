import type { RunError } from './errors.ts';
import type { MessageExtras } from './parts.ts';

/** Rows as the service sees them. Times are `Date`, money is a bigint of micro-dollars; the edges format both. */

export type Scope = 'use' | 'edit';
export type Binding = 'agent-bound' | 'org-bound';

/** Who calls: the first argument of every service operation. */
export interface Principal {
  keyId: string;
  orgId: string;
  scope: Scope;
  binding: Binding;
  /** Set exactly when the binding is `agent-bound`. */
  agentId: string | null;
}

export interface Agent {
  id: string;
  orgId: string;
  name: string;
  description: string;
  /** `<provider>/<model_name>` */
  model: string;
  /** Null: the service holds the repository itself. */
  externalGitUrl: string | null;
  deploymentId: string | null;
  /** Origins of pages that may speak to the agent at its own host; `*` stands for all. */
  allowedOrigins: string[];
  /** A small number of its own per agent and installation; drivers derive a host uid from it. */
  slot: number;
  createdAt: Date;
  updatedAt: Date;
}

export interface ApiKey {
  id: string;
  orgId: string;
  agentId: string | null;
  name: string;
  prefix: string;
  scope: Scope;
  binding: Binding;
  lastUsedAt: Date | null;
  expiresAt: Date | null;
  createdAt: Date;
}

/**
 * `env`: its value is in the environment of the sandbox, where the agent can read it. `brokered`: a placeholder is, and
 * the value goes out to `hosts` only. `withheld`: the service itself uses it (provider keys, GIT_TOKEN); nothing of it
 * is in the sandbox.
 */
export const secretKinds = ['env', 'brokered', 'withheld'] as const;
export type SecretKind = (typeof secretKinds)[number];

export interface SecretName {
  key: string;
  kind: SecretKind;
  hosts: string[];
  updatedAt: Date;
}

export interface Conversation {
  id: string;
  agentId: string;
  orgId: string;
  title: string;
  source: string;
  createdAt: Date;
  lastMessageAt: Date;
}

export type Role = 'user' | 'assistant';

export interface Message {
  id: string;
  agentId: string;
  conversationId: string;
  runId: string;
  role: Role;
  content: string;
  /** Of a user's message; null when there is nothing beside the text. */
  extras: MessageExtras | null;
  /** Of an assistant's message: what its run made. Their content is read with the run. */
  artifactIds: string[];
  createdAt: Date;
}

export type RunStatus = 'queued' | 'running' | 'awaiting_input' | 'completed' | 'failed' | 'cancelled';
export type TerminalStatus = 'completed' | 'failed' | 'cancelled';

export function isTerminal(status: RunStatus): status is TerminalStatus {
  return status === 'completed' || status === 'failed' || status === 'cancelled';
}

export interface RunUsage {
  inputTokens: number;
  outputTokens: number;
  /** Micro-dollars. */
  costMicros: bigint;
}

export interface Run {
  id: string;
  agentId: string;
  orgId: string;
  conversationId: string;
  /** Set when the run starts: it ends on the commit that it began with. */
  deploymentId: string | null;
  status: RunStatus;
  attempt: number;
  error: RunError | null;
  usage: RunUsage;
  createdAt: Date;
  startedAt: Date | null;
  endedAt: Date | null;
}

export type DeploymentStatus = 'pending' | 'ready' | 'failed';
export type DeploymentSource = 'create' | 'push' | 'fetch' | 'activate';

export interface Deployment {
  id: string;
  agentId: string;
  orgId: string;
  /** 40 hex digits; null until the ref is resolved. */
  commit: string | null;
  ref: string;
  source: DeploymentSource;
  status: DeploymentStatus;
  error: string | null;
  createdAt: Date;
  activatedAt: Date | null;
}
