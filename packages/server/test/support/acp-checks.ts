import type { Peer } from './acp-peer.ts';
import type { Wire } from './acp-wire.ts';

/** What a check has at hand: a connection that was initialized with no capability of the client, and new ones. */
export interface Bench {
  peer: Peer;
  /** Another client, by whatever transport is quick. */
  connect(agent?: 'demo' | 'varied'): Promise<Peer>;
  /** A new connection of the transport that is checked. */
  fresh(): Promise<Peer>;
  /** One that was not initialized. */
  wire(): Promise<Wire>;
  /** Of the transport, with another agent, which asks, refuses and shows all kinds of updates. */
  varied: Peer;
  /** The same of a client that has forms. */
  forms: Peer;
  isBridge: boolean;
}

export interface Check {
  name: string;
  run(bench: Bench): Promise<void>;
}

/** A list of checks, and what puts one into it. */
export function checkList(): { checks: Check[]; check(name: string, run: Check['run']): void } {
  const checks: Check[] = [];
  return { checks, check: (name, run) => void checks.push({ name, run }) };
}

export const place = { cwd: '/home/me/project', mcpServers: [] };

export const kindsOf = (peer: Peer, sessionId?: string): string[] =>
  peer.updates(sessionId).map((update) => update.sessionUpdate);
