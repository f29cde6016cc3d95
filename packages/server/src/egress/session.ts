import {
  compileEgressPolicy,
  EgressRefused,
  noEgress,
  transparentPorts,
  type CompiledEgressPolicy,
  type EgressPolicy,
  type EgressReason,
  type EgressTarget,
} from '../domain/egress-policy.ts';
import type { Gate } from '../domain/gate.ts';
import { limits as defaults } from '../domain/limits.ts';
import { ReadingAccount } from '../domain/paced.ts';
import type { EgressOwner, EgressRecorder } from '../domain/ports/egress.ts';
import type { EgressConnection } from './connection.ts';
import type { DialOptions } from './dial.ts';
import type { Interceptor } from './interceptor.ts';
import type { Meter } from './meter.ts';

/** What all sandboxes of a node share. */
export interface EgressShared {
  dial: DialOptions;
  meter: Meter;
  recorder: EgressRecorder;
  limits: EgressLimits;
  /** Connections of all sandboxes. */
  open: number;
}

export interface EgressLimits {
  connections: number;
  connectionsPerSecond: number;
  headMs: number;
  idleMs: number;
  totalMs: number;
}

/** The way out of one sandbox: its policy, and its open connections. */
export class EgressSession {
  readonly owner: EgressOwner;
  readonly shared: EgressShared;
  readonly interceptor: Interceptor | null;
  readonly connections = new Set<EgressConnection>();
  /** Of what its connections and their answers take to be read. */
  readonly reading = new ReadingAccount();
  /** Nothing goes out until a policy was read. */
  policy: CompiledEgressPolicy = compileEgressPolicy(noEgress);
  /** Null: not wanted. */
  transparentPorts: number[] | null = null;
  refusals = 0;
  /** Of the socket by which its connections come. */
  gate: Gate | null = null;
  #nextAtMs = 0;

  constructor(owner: EgressOwner, shared: EgressShared, interceptor: Interceptor | null) {
    this.owner = owner;
    this.shared = shared;
    this.interceptor = interceptor;
  }

  /** Holds for the next connection; open ones that it would not let begin are cut. */
  setPolicy(policy: EgressPolicy): void {
    this.policy = compileEgressPolicy(policy);
    this.transparentPorts = policy.transparent ? transparentPorts(policy) : null;
    for (const connection of this.connections) connection.checkAgain();
  }

  /** How long a new connection waits, so that a loop inside takes little of the service: as many at once, then so many a second. */
  pauseMs(now = performance.now()): number {
    const { connections, connectionsPerSecond } = this.shared.limits;
    const eachMs = 1_000 / connectionsPerSecond;
    this.#nextAtMs = Math.max(now, this.#nextAtMs) + eachMs;
    return Math.max(0, this.#nextAtMs - now - connections * eachMs);
  }

  /** A connection was cut for what it sent behind a request. */
  charge(): void {
    const { connections, maxMs } = defaults.pipelinedCharge;
    this.gate?.charge(connections, maxMs);
  }

  report(target: EgressTarget | null, reason: EgressReason, message: string): void {
    const { orgId, agentId } = this.owner;
    const { host, port } = target ?? { host: '', port: 0 };
    this.refusals += 1;
    this.shared.recorder.refused({ orgId, agentId, host, port, reason, message });
  }

  close(): void {
    for (const connection of this.connections) connection.destroy();
  }
}

export function refused(error: unknown): EgressRefused {
  if (error instanceof EgressRefused) return error;
  return new EgressRefused('connect_failed', 'The connection could not be made.');
}
