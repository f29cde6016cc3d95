import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { A2aCapability } from '../../domain/a2a-capabilities.ts';
import type { DomainError } from '../../domain/errors.ts';
import type { BodyHold } from '../../domain/flight.ts';
import type { Log } from '../../domain/log.ts';
import type { Agent } from '../../domain/nouns.ts';
import type { Caller, Services } from '../../services/api.ts';
import type { Head } from '../http/answer.ts';
import type { JsonBodyOptions } from '../http/body.ts';
import type { EventFrame, StreamSink } from '../http/stream.ts';

/**
 * A protocol, or whatever else is served at an agent's own host (docs/agent-hosts.md). The edge has found the agent,
 * checked the key, its rate and the origin before a mount is asked; a mount maps requests to service calls. One table
 * names all mounts: `mounts.ts`.
 */
export interface HostMount {
  /** Names it in metrics and logs: `a2a`. */
  name: string;
  /** Whether a path (as sent, without the query) is its own. The first mount of the table that says so has it. */
  owns(path: string): boolean;
  /** Loads what it needs. Awaited before anything below is asked. */
  prepare?(): Promise<void>;
  /** Whether this needs no key, such as an agent card. Absent: everything needs one. `agent` null: there is none such. */
  isPublic?(method: string, path: string, agent: Agent | null): boolean | Promise<boolean>;
  /** Answers a request without a key, for what `isPublic` says. */
  handlePublic?(call: PublicCall): Promise<Response>;
  /** Answers. What it throws becomes an error answer by `refuse`. */
  handle(call: HostCall): Promise<Response>;
  /** Takes a connection over (WebSocket). Absent: a request to upgrade is answered as if it asked for none. */
  upgrade?: HostUpgrade;
  /** The errors of this protocol's own form; absent: the service's. The status follows the code unless it is given. */
  refuse?(error: DomainError, requestId: string, asked: Asked): Refusal | undefined;
  /** Whether it answers cross-origin requests itself: the edge adds no CORS fields and answers no preflight. */
  ownCors?(agent: Agent | null): boolean | Promise<boolean>;
}

export interface HostUpgrade {
  /** Whether a request for this path may be upgraded. */
  matches(path: string): boolean;
  /** May throw before it has written to the socket. */
  handle(call: UpgradeCall): Promise<void>;
  /** The same without a key, for what `isPublic` says. */
  handlePublic?(call: PublicUpgradeCall): Promise<void>;
  /** Ends its connections: the service is draining. */
  close(): void;
}

/** Of a request that was refused: where it went, for protocols that have one form of errors here and another there. */
export interface Asked {
  path: string;
  query: string;
  header(lowerName: string): string | undefined;
}

/** `body` becomes JSON. */
export interface Refusal {
  status?: number;
  contentType?: string;
  body: unknown;
}

interface AnyCall {
  agent: Agent;
  /** The agent's own address, `https://<id>.<domain>`. */
  origin: string;
  /** Where it speaks A2A over gRPC, `host:port`; null: it does not. */
  grpcTarget: string | null;
  /** What its card declares for A2A; what is not among these is refused. */
  a2aCapabilities: readonly A2aCapability[];
  /** As sent, without the query. */
  path: string;
  /** Without its question mark. */
  query: string;
  requestId: string;
  services: Services;
  log: Log;
  /** A header's value; several of one name are joined. */
  header(lowerName: string): string | undefined;
}

export interface PublicCall extends AnyCall {
  method: string;
  /** The request as fetch has it; its URL is the one that the connection was asked for, not the public one. */
  request: Request;
  /** Fields of the answer, among them the request id, rate limit and CORS. Every answer is made with them. */
  head: Head;
  /** For handlers that write to the connection; null when there is none (a call in the same process). */
  node: { incoming: IncomingMessage; outgoing: ServerResponse } | null;
  /** The JSON body. Throws `unsupported_media_type`, `body_too_large`, `invalid_json`, `invalid_request`. */
  json(options?: JsonBodyOptions): Promise<unknown>;
  /** The body as it is. Throws `body_too_large`. */
  bytes(maxBytes?: number): Promise<Buffer>;
  /** Counts the body, until the request is answered. */
  hold: BodyHold;
  /** An answer that somebody else made, such as an SDK, with the fields of `head` that it has not. */
  adopt(response: Response): Response;
  /** Aborted when the client has gone away. `controller`: this one is, else one of its own. */
  gone(controller?: AbortController): AbortSignal;
  /** Whether the client went away before the whole answer: not when it was the service that stopped or cut it. */
  hasLeft(): boolean;
}

export interface HostCall extends PublicCall {
  /**
   * Narrowed to this agent: whatever the key may see else, to the services it is bound to the agent of this host, so
   * that nothing of another agent is found here.
   */
  caller: Caller;
  /**
   * Server-sent events, written to the connection as they come. `frame` makes the text of an event of the log, with its
   * blank line at the end, or `''` for nothing; the sink takes text of its own by `raw`. Without a connection: 500.
   */
  stream(frame: EventFrame, begin: (sink: StreamSink) => Promise<() => void>): Promise<Response>;
  /** Whether `stream` has a connection to write to. */
  canStream: boolean;
}

export interface PublicUpgradeCall extends AnyCall {
  /** Fields of a refusal, among them the request id. */
  head: Head;
  request: IncomingMessage;
  socket: Duplex;
  /** The first bytes after the head. */
  firstBytes: Buffer;
  /** For the bytes of one message that comes. */
  openBody(): BodyHold;
}

export interface UpgradeCall extends PublicUpgradeCall {
  caller: Caller;
}
