import type { A2aCapability } from '../../domain/a2a-capabilities.ts';
import type { Readable } from 'node:stream';
import type { z } from 'zod';
import { z as zod } from 'zod';
import type { ErrorCode } from '../../domain/errors.ts';
import type { Caller, EventSink, Services } from '../../services/api.ts';
import type { Answer, Head } from './answer.ts';
import type { ParamsOf } from './params.ts';

/** What a key must have for a call (API contract, section 2); `org-` calls need an org-bound key. */
export type Access = 'use' | 'edit' | 'org-use' | 'org-edit';

export type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';

export type Tag =
  | 'Quick start'
  | 'Agents'
  | 'API keys'
  | 'Secrets'
  | 'Deployments'
  | 'Conversations'
  | 'Runs'
  | 'Events'
  | 'Egress'
  | 'Channels'
  | 'Schedules'
  | 'Webhook endpoints'
  | 'Sandboxes'
  | 'Sandbox files'
  | 'Snapshots'
  | 'Budgets'
  | 'Limits';

/** One way in which a call succeeds. `schema` null: no body. */
export interface Reply {
  description: string;
  schema: z.ZodType | null;
  example?: unknown;
  headers?: Record<string, string>;
  /** Also given as `text/event-stream` when asked for; the example shows it. */
  streamExample?: string;
  /** Given as bytes of these media types, beside the JSON of `schema` if there is one. */
  media?: Record<string, string>;
}

export type Replies = Record<number, Reply>;

type AnswerOf<R extends Replies> = {
  [S in keyof R & number]: {
    status: S;
    headers?: Record<string, string>;
    secretOf?: string;
  } & (R[S]['schema'] extends z.ZodType ? { body: z.input<R[S]['schema']> } : { body?: undefined });
}[keyof R & number];

export interface Addresses {
  /** Where clients reach the service, without a trailing slash. */
  baseUrl: string;
  appDomain: string;
  /** Port at which clients reach A2A over gRPC at the agents' hosts; absent: it is not served. */
  a2aGrpcPort?: number;
  /** What agent cards declare; absent: everything. */
  a2aCapabilities?: readonly A2aCapability[];
}

/** Everything that a handler works with; it does one service call and answers. */
export interface Call<P, Q, B> {
  services: Services;
  addresses: Addresses;
  caller: Caller;
  params: P;
  query: Q;
  body: B;
  head: Head;
  header(lowerName: string): string | undefined;
  isHead: boolean;
  /** False for HEAD requests and where there is no connection to write to. */
  canStream: boolean;
  /** Aborted when the client has gone away. */
  gone(): AbortSignal;
  /** The bytes of the body, for a route with `rawBody`. */
  upload(): AsyncIterable<Buffer>;
  /** Answers with bytes, as fast as the client takes them; null for a HEAD request. Rejects with a failure before the first; a later one cuts the connection. */
  download(status: number, headers: Record<string, string>, content: Readable | null): Promise<Response>;
  /** Server-sent events of any kind, under the same rules. */
  streamText(begin: (sink: TextSink) => Promise<() => void>): Promise<Response>;
  /** Answers with server-sent events, written to the connection as they come. `begin` rejects before it writes. */
  stream(begin: (sink: EventSink) => Promise<() => void>): Promise<Response>;
}

/** What a route may know an answer by. */
export type KnownCall = Pick<
  Call<Record<string, string>, never, never>,
  'services' | 'addresses' | 'caller' | 'params'
>;

/** The JSON of an answer, and its length in UTF-8. */
export interface KnownJson {
  json: string;
  bytes: number;
}

/** Where server-sent events that are no events of a conversation go. */
export interface TextSink {
  /** False: the client is gone. `data` becomes JSON. */
  send(event: string, data: unknown, id?: string): boolean;
  /** Resolves when the client has taken what was sent, or is gone. */
  drained(): Promise<void>;
  end(): void;
}

export interface HeaderInfo {
  name: string;
  description: string;
  example: string;
}

interface RouteSpec<Path extends string, Q extends z.ZodObject, B extends z.ZodObject, R extends Replies> {
  /** The operation's name for generated clients. */
  id: string;
  method: Method;
  path: Path;
  tag: Tag;
  access: Access;
  summary: string;
  description: string;
  query: Q;
  /** Strict: unknown fields are refused. */
  body: B;
  bodyExample?: unknown;
  /** The body is bytes of these media types, each with a description; `body` is not read. */
  rawBody?: Record<string, string>;
  requestHeaders?: HeaderInfo[];
  replies: R;
  /** Errors beyond those that every call of its kind can give. */
  errors?: ErrorCode[];
  /**
   * How a POST keeps its Idempotency-Key. `transaction`: effect and record in one. `lease`: for work that waits for
   * something outside the database; broken off, it is never begun anew. `repeatable`: the same, for work that done
   * twice is as done once, and is begun anew. `own`: the service does it.
   */
  idempotency: 'transaction' | 'lease' | 'repeatable' | 'own';
  /** Its answer holds a secret that is shown once, of what `secretOf` of the answer names. */
  showsSecret?: true;
  handler(call: Call<ParamsOf<Path>, z.output<Q>, z.output<B>>): Promise<AnswerOf<R> | Response>;
  /**
   * For a GET without a query: what `handler` would answer with 200, when it is known without a wait; null when
   * it is not, or is not the caller's to see.
   */
  known?(call: KnownCall): KnownJson | null;
}

export const nothing = zod.strictObject({});

type Optional<T, K extends keyof T> = Omit<T, K> & Partial<Pick<T, K>>;

/** A route with its types erased, as the registry keeps it. */
export type Route = Omit<RouteSpec<string, z.ZodObject, z.ZodObject, Replies>, 'handler'> & {
  handler(call: Call<Record<string, string>, unknown, unknown>): Promise<Answer | Response>;
};

/**
 * Declares one call of the API: its types, its check, its documentation and its handler in one place. Without `query`
 * or `body` none is taken.
 */
export function route<
  const Path extends string,
  const R extends Replies,
  Q extends z.ZodObject = typeof nothing,
  B extends z.ZodObject = typeof nothing,
>(spec: Optional<RouteSpec<Path, Q, B, R>, 'query' | 'body' | 'idempotency'>): Route {
  return { query: nothing, body: nothing, idempotency: 'transaction', ...spec } as unknown as Route;
}

export function takesBody(route: Route): boolean {
  if (route.rawBody) return false;
  return route.method === 'post' || route.method === 'put' || route.method === 'patch';
}
