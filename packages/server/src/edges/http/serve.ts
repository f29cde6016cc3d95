import type { Context } from 'hono';
import { DomainError } from '../../domain/errors.ts';
import type { BodyHold } from '../../domain/flight.ts';
import { newId } from '../../domain/ids.ts';
import { senderOf } from '../../domain/slices.ts';
import type { Caller } from '../../services/api.ts';
import type { Answer, Head } from './answer.ts';
import { jsonResponse, newHead, toResponse } from './answer.ts';
import { readJsonBody } from './body.ts';
import type { Edge } from './edge.ts';
import { errorResponse, presentable } from './errors.ts';
import { admit } from './gate.ts';
import { abortWhenGone } from './gone.ts';
import { idempotencyKey, requestHash, store, storeRefusal } from './idempotency.ts';
import type { RouteStats } from './metrics.ts';
import { paramInfo, readParam } from './params.ts';
import { parseQuery } from './query.ts';
import type { Env } from './request.ts';
import { header, queryText, restOfPath } from './request.ts';
import { sendBytes, uploadOf } from './bytes.ts';
import { checkAccess } from './reveal.ts';
import type { Call, Route } from './route.ts';
import { takesBody } from './route.ts';
import { validate } from './validate.ts';

/** A route made ready: `paramNames[i]` is what Hono calls `p<i>`. */
export interface Prepared {
  route: Route;
  paramNames: string[];
  stats: RouteStats;
}

interface Input {
  query: unknown;
  body: unknown;
  idempotencyKey: string | null;
}

/**
 * The one way of a request (API contract, sections 2 to 4): id, key, rate limit, input, handler. It is one function
 * per route instead of a chain of middleware.
 */
export async function serve(c: Context<Env>, prepared: Prepared, edge: Edge): Promise<Response> {
  const startedAt = performance.now();
  const requestId = newId();
  const head = newHead(requestId);
  if (edge.draining) head['Connection'] = 'close';
  const trace: Trace = { keyId: null, body: null };
  let response: Response;
  let failure: DomainError | null = null;
  try {
    response = await answer(c, prepared, edge, head, trace);
  } catch (error) {
    failure = presentable(error, requestId);
    response = errorResponse(failure, head);
  } finally {
    trace.body?.drop();
  }
  const ms = performance.now() - startedAt;
  prepared.stats.observe(response.status, ms / 1000);
  writeAccessLog(c, edge, { requestId, status: response.status, ms, keyId: trace.keyId }, failure);
  return response;
}

/** What is known of a request that is answered. */
export interface Trace {
  keyId: string | null;
  body: BodyHold | null;
}

async function answer(
  c: Context<Env>,
  prepared: Prepared,
  edge: Edge,
  head: Head,
  trace: Trace,
): Promise<Response> {
  const { route } = prepared;
  const caller = await admit(c, edge, head);
  trace.keyId = caller.keyId;
  trace.body = edge.flight.open(caller.orgId);
  const params: Record<string, string> = {};
  let input: Input;
  try {
    for (const [index, name] of prepared.paramNames.entries()) {
      const isPath = paramInfo[name]?.kind === 'path';
      // What stands before a path in its template has as many segments.
      const before = isPath ? route.path.split('/').length - 2 : 0;
      params[name] = readParam(name, isPath ? restOfPath(c, before) : (c.req.param(`p${index}`) ?? ''));
    }
    input = await readInput(c, route, caller, trace.body);
  } catch (error) {
    await checkAccess(route, edge.services, caller, params);
    throw error;
  }
  const call = makeCall(c, edge, caller, params, input, head);
  if (input.idempotencyKey !== null) return once(c, route, edge, call, input.idempotencyKey, head);
  const result = await route.handler(call);
  return result instanceof Response ? result : toResponse(result, head, call.caller);
}

async function readInput(c: Context<Env>, route: Route, caller: Caller, hold: BodyHold): Promise<Input> {
  const query = validate(route.query, parseQuery(queryText(c.req.url)), 'query');
  const body = takesBody(route)
    ? validate(route.body, await readJsonBody(c, senderOf(caller), hold), 'body')
    : {};
  const keyed = route.method === 'post' && route.idempotency !== 'own';
  return { query, body, idempotencyKey: keyed ? idempotencyKey(header(c, 'idempotency-key')) : null };
}

async function once(
  c: Context<Env>,
  route: Route,
  edge: Edge,
  call: Call<Record<string, string>, unknown, unknown>,
  key: string,
  head: Head,
): Promise<Response> {
  const hash = requestHash(`POST ${c.req.path}`, [call.query, call.body]);
  const { answer, replayed } = await edge.services.idempotency.once(call.caller, key, hash, {
    lease: route.idempotency !== 'transaction',
    repeatable: route.idempotency === 'repeatable',
    run: async () => store((await route.handler(call)) as Answer),
    refusal: storeRefusal,
  });
  Object.assign(head, answer.headers);
  if (replayed) head['Idempotent-Replayed'] = 'true';
  if (answer.body.length > 0) return jsonResponse(answer.status, answer.body.toString(), head);
  return new Response(null, { status: answer.status, headers: head });
}

function makeCall(
  c: Context<Env>,
  edge: Edge,
  caller: Caller,
  params: Record<string, string>,
  input: Input,
  head: Head,
): Call<Record<string, string>, unknown, unknown> {
  const outgoing = c.env?.outgoing;
  return {
    services: edge.services,
    addresses: edge.addresses,
    caller,
    params,
    query: input.query,
    body: input.body,
    head,
    header: (lowerName) => header(c, lowerName),
    isHead: c.req.raw.method === 'HEAD',
    canStream: outgoing !== undefined && c.req.raw.method !== 'HEAD',
    gone: () => abortWhenGone(outgoing, new AbortController()),
    upload: () => uploadOf(c),
    download: (status, headers, content) => sendBytes(c, head, edge.log, status, headers, content),
    streamText(begin) {
      if (outgoing) return edge.streams.open(outgoing, head, begin);
      throw new DomainError('internal', 'There is no connection to stream to.');
    },
    stream(begin) {
      if (outgoing) return edge.streams.open(outgoing, head, begin);
      throw new DomainError('internal', 'There is no connection to stream to.');
    },
  };
}

interface Access {
  requestId: string;
  status: number;
  ms: number;
  keyId: string | null;
}

/** One line a request: reads at `debug`, changes at `info`, our own failures at `error` with their cause. */
function writeAccessLog(c: Context<Env>, edge: Edge, access: Access, failure: DomainError | null): void {
  const method = c.req.raw.method;
  const fields = { ...access, ms: Math.round(access.ms * 100) / 100, method, path: c.req.path };
  if (failure && access.status >= 500)
    edge.log.error('request failed', { ...fields, cause: failure.cause ?? failure });
  else if (method === 'GET' || method === 'HEAD') edge.log.debug('request', fields);
  else edge.log.info('request', fields);
}
