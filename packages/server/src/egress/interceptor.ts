import type { Socket } from 'node:net';
import type { EgressReason, EgressTarget } from '../domain/egress-policy.ts';

/**
 * Opens a TCP connection: the name is resolved once, every address is checked, and a checked address is dialled. What
 * passes over it is counted for the target's host. Whether the policy allows the target was asked before. Rejects with
 * EgressRefused, whose text may be shown inside.
 */
export type CheckedDial = (target: EgressTarget) => Promise<Socket>;

/** The head of a request as it was read, before anything of it has left the host. Texts are latin1. */
export interface RequestHead {
  method: string;
  /** Origin form: path and query. */
  path: string;
  /** In order, with the spelling of the sender; a name may stand twice. */
  headers: [name: string, value: string][];
}

/** `replace`: this head is sent instead. `refuse`: nothing is sent; the proxy answers 403 and reports it. */
export type HeadVerdict =
  | { kind: 'pass' }
  | { kind: 'replace'; head: RequestHead }
  | { kind: 'refuse'; reason: EgressReason; message: string };

/**
 * A CONNECT that the policy allowed and that was answered with 200. The proxy has read the whole ClientHello, found
 * that its server name is the target's host, and put the bytes back: `client` is paused, and they are read first.
 */
export interface InterceptedTunnel {
  target: EgressTarget;
  client: Socket;
  dial: CheckedDial;
  /** A refusal that the owner sees (GET /v1/agents/{id}/egress/refusals). Answering the program is the interceptor's. */
  report(reason: EgressReason, message: string): void;
  /** The sandbox is to pay for a connection that was cut for what it sent behind a request. */
  charge(): void;
}

/**
 * What is done to the traffic of one sandbox for its brokered secrets. The proxy asks after the policy allowed a target.
 * All methods are called by hostile input, must not throw, and must not block.
 */
export interface Interceptor {
  /** Whether TLS to this target is ended here (exactly the hosts of a brokered secret). Asked again for each connection. */
  takes(target: EgressTarget): boolean;
  /**
   * Owns the tunnel from here on and closes what it opened when either end is closed. The proxy destroys `client` when
   * the sandbox ends, the policy no longer allows the target, or a limit of time is reached.
   */
  tunnel(tunnel: InterceptedTunnel): void;
  /** Each plain HTTP request, to whatever host. The proxy has removed hop-by-hop headers and frames the body itself. */
  plainRequest(target: EgressTarget, head: RequestHead): HeadVerdict;
  /**
   * What a plain request's body begins with, before it is sent: the first bytes that came, at most 16 KiB. Not asked
   * for a body that never comes.
   */
  plainBody(target: EgressTarget, start: Buffer): { kind: 'pass' } | (HeadVerdict & { kind: 'refuse' });
}
