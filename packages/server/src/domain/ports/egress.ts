import type { EgressPolicy, EgressReason } from '../egress-policy.ts';

/** Whose sandbox it is: known from the socket, never from what is said over it. */
export interface EgressOwner {
  orgId: string;
  agentId: string;
  sandboxId: string;
}

export interface EgressRefusal {
  orgId: string;
  agentId: string;
  /** As it was asked for, when it could be read; else empty, and the port 0. */
  host: string;
  port: number;
  reason: EgressReason;
  message: string;
}

export interface EgressTraffic {
  orgId: string;
  agentId: string;
  host: string;
  /** Out of the sandbox. */
  sentBytes: number;
  /** Into the sandbox. */
  receivedBytes: number;
  connections: number;
}

/** Takes what happened, from memory, and writes it later in batches. */
export interface EgressRecorder {
  refused(refusal: EgressRefusal): void;
  passed(traffic: EgressTraffic): void;
}

/** The way out of one sandbox. */
export interface SandboxEgress {
  /** Whether the sandbox is to be started with `SandboxSpec.transparentEgress`. */
  transparent: boolean;
  /** Told to the launcher inside (docs/design/sandbox-launch.md). */
  env: Record<string, string>;
  close(): void;
}

export interface EgressStats {
  /** Of all sandboxes, open now. */
  connections: number;
  refusals: number;
  sentBytes: number;
  receivedBytes: number;
}

/** The way out of all sandboxes of this node. */
export interface Egress {
  /** Listens on `egress.sock` in the sandbox's run folder, also again after a restart of the service. */
  open(owner: EgressOwner, runDir: string): Promise<SandboxEgress>;
  /**
   * Reads the agent's policy again, or every agent's; connections to what is no longer allowed are cut before it
   * resolves.
   */
  policyChanged(agentId: string | null): Promise<void>;
  stats(): EgressStats;
  close(): void;
}

export type ReadEgressPolicy = (agentId: string) => Promise<EgressPolicy>;
