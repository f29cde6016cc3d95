import type { AgentConnection } from '@agentclientprotocol/sdk';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { InOrder } from './in-order.ts';

/** A connection of a client, by WebSocket or over HTTP. */
export interface OpenConnection {
  keyId: string;
  agentId: string;
  /** Set once the agent's side is there. */
  agent: AgentConnection | null;
  /** `Acp-Connection-Id`; null until it is given out, and for a WebSocket, which needs none. */
  id: string | null;
  lastUsedMs: number;
  /** Streams over HTTP that are being read. */
  streams: number;
  /** A WebSocket is looked after by its pings. */
  isSocket: boolean;
  /** Of what comes over HTTP. */
  order: InOrder;
}

const SWEEP_MS = 30_000;

/** The open connections: so many a key, each found by its own key and agent alone, none kept that nobody uses. */
export class Connections {
  readonly #all = new Set<OpenConnection>();
  readonly #byId = new Map<string, OpenConnection>();
  #sweep: NodeJS.Timeout | null = null;

  /** Throws `rate_limited` when the key has as many as it may. */
  open(keyId: string, agentId: string, isSocket: boolean): OpenConnection {
    let count = 0;
    for (const one of this.#all) if (one.keyId === keyId) count += 1;
    if (count >= limits.acpConnectionsPerKey) {
      throw new DomainError(
        'rate_limited',
        `This key has ${count} connections of the Agent Client Protocol open; close one of them.`,
        { retryAfterSeconds: 5 },
      );
    }
    const made: OpenConnection = {
      keyId,
      agentId,
      agent: null,
      id: null,
      lastUsedMs: performance.now(),
      streams: 0,
      isSocket,
      order: new InOrder(() => undefined),
    };
    this.#all.add(made);
    this.#sweep ??= setInterval(() => this.#closeIdle(), SWEEP_MS).unref();
    return made;
  }

  name(connection: OpenConnection, id: string): void {
    connection.id = id;
    if (this.#all.has(connection)) this.#byId.set(id, connection);
  }

  /** Another key's, or another agent's, is not there. */
  find(id: string, keyId: string, agentId: string): OpenConnection | null {
    const found = this.#byId.get(id);
    if (!found || found.keyId !== keyId || found.agentId !== agentId) return null;
    found.lastUsedMs = performance.now();
    return found;
  }

  remove(connection: OpenConnection): void {
    this.#all.delete(connection);
    if (connection.id !== null) this.#byId.delete(connection.id);
    if (this.#all.size > 0 || this.#sweep === null) return;
    clearInterval(this.#sweep);
    this.#sweep = null;
  }

  #closeIdle(): void {
    const before = performance.now() - limits.acpIdleMs;
    for (const one of this.#all) {
      if (one.isSocket || one.streams > 0 || one.lastUsedMs > before) continue;
      one.agent?.close();
      this.remove(one);
    }
  }
}
