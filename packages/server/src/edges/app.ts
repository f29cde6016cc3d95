import type { Context } from 'hono';
import { Hono } from 'hono';
import type { Network } from '../domain/address-ranges.ts';
import { DomainError } from '../domain/errors.ts';
import { Flight } from '../domain/flight.ts';
import { newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import type { Services } from '../services/api.ts';
import { newHead } from './http/answer.ts';
import type { Edge } from './http/edge.ts';
import { errorResponse, presentable } from './http/errors.ts';
import { createProxies } from './http/forwarded.ts';
import { createMetrics } from './http/metrics.ts';
import { admit } from './http/gate.ts';
import type { Env, NodeBindings } from './http/request.ts';
import { header } from './http/request.ts';
import type { Addresses } from './http/route.ts';
import type { Prepared } from './http/serve.ts';
import { serve } from './http/serve.ts';
import type { AnswerKnown } from './http/serve-known.ts';
import { createKnownAnswers } from './http/serve-known.ts';
import { createStreams } from './http/stream.ts';
import { paramInfo } from './http/params.ts';
import { findAllowed } from './http/allowed.ts';
import type { HostMount } from './hosts/host-edge.ts';
import type { Hosts } from './hosts/hosts.ts';
import { createHosts } from './hosts/hosts.ts';
import { hostMounts } from './hosts/mounts.ts';
import type { Probe } from './pages.ts';
import { addPages } from './pages.ts';
import { routes } from './routes.ts';

export interface AppOptions {
  addresses: Addresses;
  log: Log;
  /** Asked by `GET /readyz`. */
  probe: Probe;
  /** Shown by `GET /metrics` beside the app's own numbers; called once a reading. */
  gauges?: () => Record<string, number>;
  heartbeatMs?: number;
  maxUnreadBytes?: number;
  /** Proxies that are believed what they say of a request's host and client. */
  trustedProxies?: readonly Network[];
  /** For tests: with other limits. */
  flight?: Flight;
  /** For tests: what agents' hosts serve instead of the protocols. */
  hostMounts?: (edge: Edge) => HostMount[];
}

export interface App {
  /** Request in, Response out; `env` has the Node request and response when there are such. */
  fetch: Hono<Env>['fetch'];
  /** The same for a path, without a connection. */
  request(path: string, init?: RequestInit): Promise<Response>;
  /** The short way of a request to the service's own host; false: `fetch` answers it. */
  answerKnown: AnswerKnown;
  edge: Edge;
  hosts: Hosts;
  /** From now on answers close their connection, `/readyz` says 503, and open streams end. */
  drain(): void;
  close(): void;
}

/** All HTTP surfaces of the service but git, as one function from Request to Response (API contract, section 1). */
export function createApp(services: Services, options: AppOptions): App {
  const edge: Edge = {
    services,
    addresses: options.addresses,
    log: options.log,
    metrics: createMetrics(),
    streams: createStreams({
      heartbeatMs: options.heartbeatMs ?? limits.sseHeartbeatMs,
      maxUnreadBytes: options.maxUnreadBytes ?? 256 * 1024,
    }),
    proxies: createProxies(options.trustedProxies ?? []),
    flight: options.flight ?? new Flight(),
    draining: false,
  };
  const hosts = createHosts(edge, (options.hostMounts ?? hostMounts)(edge));
  const hono = new Hono<Env>();
  const allPrepared: Prepared[] = [];
  for (const route of routes) {
    const paramNames: string[] = [];
    // Names are by position, so that two routes may call the same segment differently.
    const pattern = route.path.replace(
      /\{(\w+)\}/g,
      (_, name: string) =>
        `:p${paramNames.push(name) - 1}${paramInfo[name]?.kind === 'path' ? '{[\\s\\S]*}' : ''}`,
    );
    const prepared = { route, paramNames, stats: edge.metrics.statsOf(route) };
    allPrepared.push(prepared);
    hono.on(route.method.toUpperCase(), pattern, (c) => serve(c, prepared, edge));
  }
  const pagePaths = addPages(hono, edge, options.probe, options.gauges ?? (() => ({})));
  hono.notFound((c) => refuse(c, edge, pagePaths));
  hono.onError((error, c) => failed(error, c, edge));
  const isForAgent = (request: Request, env: NodeBindings | undefined): boolean =>
    (env?.incoming
      ? hosts.labelOf(env.incoming)
      : hosts.labelOfHost(request.headers.get('host') ?? undefined)) !== null;
  const fetch: App['fetch'] = (request, env, context) =>
    isForAgent(request, env as NodeBindings | undefined)
      ? hosts.fetch(request, env, context)
      : hono.fetch(request, env, context);
  return {
    fetch,
    request: async (path, init) => fetch(new Request(new URL(String(path), 'http://localhost'), init)),
    answerKnown: createKnownAnswers(allPrepared, edge),
    edge,
    hosts,
    drain() {
      edge.draining = true;
      edge.streams.endAll();
    },
    close: () => edge.metrics.close(),
  };
}

/**
 * No route has this path and method: 405 when the path is known, else 404. Whoever sends a key is a caller all the same:
 * it is checked, counted, and told what is left.
 */
async function refuse(c: Context<Env>, edge: Edge, pagePaths: string[]): Promise<Response> {
  const head = newHead(newId());
  try {
    if (header(c, 'authorization')) await admit(c, edge, head);
  } catch (error) {
    return errorResponse(presentable(error, head['X-Request-Id']!), head);
  }
  const allowed = findAllowed(c.req.path, pagePaths);
  edge.log.debug('no route', { requestId: head['X-Request-Id'], method: c.req.method, path: c.req.path });
  if (allowed.length === 0) {
    return errorResponse(new DomainError('not_found', 'There is nothing here; see /docs.'), head);
  }
  head['Allow'] = allowed.join(', ');
  const message = `This path takes ${allowed.join(', ')} only.`;
  return errorResponse(new DomainError('method_not_allowed', message), head);
}

/** Only what `serve` does not catch itself: the pages. */
function failed(error: unknown, c: Context<Env>, edge: Edge): Response {
  const requestId = newId();
  const failure = presentable(error, requestId);
  edge.log.error('request failed', { requestId, path: c.req.path, cause: failure.cause ?? failure });
  return errorResponse(failure, newHead(requestId));
}
