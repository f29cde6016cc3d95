import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context } from 'hono';
import { a2aCapabilities } from '../../domain/a2a-capabilities.ts';
import { DomainError, notFound } from '../../domain/errors.ts';
import { newId } from '../../domain/ids.ts';
import { limits } from '../../domain/limits.ts';
import type { Agent } from '../../domain/nouns.ts';
import { senderOf } from '../../domain/slices.ts';
import type { Caller } from '../../services/api.ts';
import type { Trace } from '../http/serve.ts';
import type { Head } from '../http/answer.ts';
import { newHead } from '../http/answer.ts';
import type { JsonBodyOptions } from '../http/body.ts';
import { readBody, readJsonBody } from '../http/body.ts';
import { abortWhenGone, clientLeft } from '../http/gone.ts';
import type { Edge } from '../http/edge.ts';
import { errorResponse, errorResponseAs, presentable } from '../http/errors.ts';
import { admitKey } from '../http/gate.ts';
import type { RouteStats } from '../http/metrics.ts';
import type { Env } from '../http/request.ts';
import { clientAddress, header, queryText } from '../http/request.ts';
import { agentUrl, grpcTarget } from '../present/agent.ts';
import { preflight, writeCors } from './cors.ts';
import { hostKey } from './credentials.ts';
import type { HostCall, HostMount, PublicCall } from './host-edge.ts';

/** A mount made ready. */
export interface PreparedMount {
  mount: HostMount;
  stats: RouteStats;
}

/** The way of a request to an agent's host: id, mount, origin, key, rate limit, agent, and then the protocol. */
export async function serveHost(
  c: Context<Env>,
  label: string,
  table: readonly PreparedMount[],
  edge: Edge,
): Promise<Response> {
  const startedAt = performance.now();
  const requestId = newId();
  const head = newHead(requestId);
  if (edge.draining) head['Connection'] = 'close';
  const path = sentPath(c);
  const prepared = table.find(({ mount }) => mount.owns(path));
  const trace: Trace = { keyId: null, body: null };
  let response: Response;
  let failure: DomainError | null = null;
  try {
    response = await answer(c, { label, path, mount: prepared?.mount, head, requestId, edge, trace });
  } catch (error) {
    failure = presentable(error, requestId);
    const asked = { path, query: queryText(c.req.url), header: (name: string) => header(c, name) };
    const refusal = prepared?.mount.refuse?.(failure, requestId, asked);
    response = refusal ? errorResponseAs(failure, head, refusal) : errorResponse(failure, head);
  } finally {
    trace.body?.drop();
  }
  const ms = performance.now() - startedAt;
  const isSent = response === RESPONSE_ALREADY_SENT;
  const status = (isSent ? c.env?.outgoing?.statusCode : undefined) ?? response.status;
  prepared?.stats.observe(status, ms / 1000);
  const method = c.req.raw.method;
  const fields = {
    requestId,
    status,
    ms: Math.round(ms * 100) / 100,
    keyId: trace.keyId,
    agentHost: label,
    method,
    path,
  };
  // Of what its own server does or leaves, the agent's owner hears.
  if (failure && status >= 500 && !failure.code.includes('gateway'))
    edge.log.error('request failed', { ...fields, cause: failure.cause ?? failure });
  else if (method === 'POST') edge.log.info('request', fields);
  else edge.log.debug('request', fields);
  return response;
}

interface Asked {
  label: string;
  path: string;
  mount: HostMount | undefined;
  head: Head;
  requestId: string;
  edge: Edge;
  trace: Trace;
}

async function answer(c: Context<Env>, asked: Asked): Promise<Response> {
  const { label, path, mount, head, edge } = asked;
  const { services } = edge;
  await mount?.prepare?.();
  const method = c.req.raw.method;
  const origin = header(c, 'origin');
  if (origin !== undefined) {
    const agent = await services.agents.find(label);
    const isOwn = (await mount?.ownCors?.(agent)) === true;
    if (agent && !isOwn) writeCors(head, agent.allowedOrigins, origin, agentUrl(agent.id, edge.addresses));
    if (!isOwn && method === 'OPTIONS' && header(c, 'access-control-request-method') !== undefined) {
      if (!agent) throw notFound();
      return preflight(head, header(c, 'access-control-request-headers'));
    }
  }
  if (mount?.isPublic && mount.handlePublic) {
    const agent = await services.agents.find(label);
    if (await mount.isPublic(method, path, agent)) {
      if (!agent) throw notFound();
      return mount.handlePublic(publicCall(c, asked, agent));
    }
  }
  const caller = await admitKey(
    edge,
    () => hostKey(c.env?.incoming?.headers ?? Object.fromEntries(c.req.raw.headers)),
    () => clientAddress(c, edge),
    head,
  );
  asked.trace.keyId = caller.keyId;
  const agent = await services.agents.get(caller, label);
  if (!mount) throw notFound();
  return mount.handle(keyedCall(c, asked, agent, narrowed(caller, agent)));
}

/** On its host nothing but the agent is found, whatever the key may see elsewhere. */
export function narrowed(caller: Caller, agent: Agent): Caller {
  if (caller.binding === 'agent-bound') return caller;
  return Object.freeze({ ...caller, binding: 'agent-bound' as const, agentId: agent.id });
}

function publicCall(c: Context<Env>, asked: Asked, agent: Agent): PublicCall {
  const { edge, head, requestId, path } = asked;
  const { incoming, outgoing } = c.env ?? {};
  const hold = (asked.trace.body = edge.flight.open(agent.orgId));
  return {
    agent,
    origin: agentUrl(agent.id, edge.addresses),
    grpcTarget: grpcTarget(agent.id, edge.addresses),
    a2aCapabilities: edge.addresses.a2aCapabilities ?? a2aCapabilities,
    path,
    query: queryText(c.req.url),
    requestId,
    services: edge.services,
    log: edge.log,
    header: (lowerName) => header(c, lowerName),
    method: c.req.raw.method,
    request: c.req.raw,
    head,
    node: incoming && outgoing ? { incoming, outgoing } : null,
    json: (options) => readJsonBody(c, { orgId: agent.orgId, id: agent.id }, hold, options),
    bytes: (maxBytes = limits.bodyBytes) => readBody(c, maxBytes, hold),
    hold,
    adopt: (response) => adopt(response, head),
    gone: (controller = new AbortController()) => abortWhenGone(outgoing, controller),
    hasLeft: () => outgoing !== undefined && clientLeft(outgoing) && !edge.draining,
  };
}

function keyedCall(c: Context<Env>, asked: Asked, agent: Agent, caller: Caller): HostCall {
  const outgoing = c.env?.outgoing;
  const call = publicCall(c, asked, agent);
  const hold = asked.trace.body!;
  return Object.assign(call, {
    caller,
    json: (options?: JsonBodyOptions) => readJsonBody(c, senderOf(caller), hold, options),
    canStream: outgoing !== undefined && c.req.raw.method !== 'HEAD',
    stream: async (frame, begin) => {
      if (outgoing) return asked.edge.streams.open(outgoing, asked.head, begin, frame);
      throw new DomainError('internal', 'There is no connection to stream to.');
    },
  } satisfies Pick<HostCall, 'caller' | 'canStream' | 'stream' | 'json'>);
}

/** Its own headers are added to: another response around it would make a stream of a body that is a text. */
function adopt(response: Response, head: Head): Response {
  const { headers } = response;
  for (const [name, value] of Object.entries(head)) if (!headers.has(name)) headers.set(name, value);
  return response;
}

/** As it was sent: what a URL parser makes of dots and escapes would not be what a mount's own server is to see. */
function sentPath(c: Context<Env>): string {
  const target = c.env?.incoming?.url ?? new URL(c.req.raw.url).pathname;
  return target.split(/[?#]/, 1)[0]!.replace(/^https?:\/\/[^/]*/i, '') || '/';
}
