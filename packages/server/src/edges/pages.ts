import { createHash } from 'node:crypto';
import type { Context, Hono } from 'hono';
import { DomainError } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { KEYS_PATH } from './a2a/paths.ts';
import { docsPage } from './docs/page.ts';
import { landingPage } from './docs/landing.ts';
import { style } from './docs/style.ts';
import type { FixedBody, Head } from './http/answer.ts';
import { fixedBody, jsonResponse, newHead } from './http/answer.ts';
import type { Edge } from './http/edge.ts';
import { errorResponse } from './http/errors.ts';
import type { Env } from './http/request.ts';
import { hostOpenapiText } from './openapi-hosts.ts';
import { openapiText } from './openapi.ts';

/** What keeps the service from taking work; empty when it is ready. Each is one line for an operator. */
export type Probe = () => Promise<string[]>;

/**
 * Pages for people and machines that need no key: they say nothing of any organisation. Returns their paths.
 */
export function addPages(
  hono: Hono<Env>,
  edge: Edge,
  probe: Probe,
  gauges: () => Record<string, number>,
): string[] {
  // Made when they are asked for first: most services are never asked, and they take time and memory at the start.
  const openapi = once(() => fixedBody(openapiText(edge.addresses.baseUrl)));
  const docs = once(() => fixedBody(docsPage(edge.addresses)));
  const landing = once(() => fixedBody(landingPage(edge.addresses)));
  const { baseUrl, appDomain } = edge.addresses;
  const hostOpenapi = once(() =>
    fixedBody(hostOpenapiText(appDomain, baseUrl.startsWith('https:') ? 'https' : 'http')),
  );
  const pages: Record<string, (c: Context<Env>) => Response | Promise<Response>> = {
    '/': () => html(landing()),
    '/docs': () => html(docs()),
    '/openapi.json': () =>
      jsonResponse(200, openapi(), { ...publicHead(), 'Access-Control-Allow-Origin': '*' }),
    '/openapi-agent-host.json': () =>
      jsonResponse(200, hostOpenapi(), { ...publicHead(), 'Access-Control-Allow-Origin': '*' }),
    '/healthz': () => jsonResponse(200, '{"status":"ok"}', newHead(newId())),
    '/readyz': () => ready(edge, probe),
    '/metrics': () => metrics(edge, gauges),
    [KEYS_PATH]: () => cardKeys(edge),
  };
  for (const [path, handler] of Object.entries(pages)) hono.get(path, handler);
  return Object.keys(pages);
}

function once<T>(make: () => T): () => T {
  let made: { value: T } | null = null;
  return () => (made ??= { value: make() }).value;
}

async function ready(edge: Edge, probe: Probe): Promise<Response> {
  const problems = edge.draining ? ['The service is shutting down.'] : await probe();
  const head = newHead(newId());
  if (problems.length === 0) return jsonResponse(200, '{"status":"ready"}', head);
  return errorResponse(new DomainError('unavailable', problems.join(' '), { retryAfterSeconds: 1 }), head);
}

/** What the cards of agents are signed with. */
async function cardKeys(edge: Edge): Promise<Response> {
  const text = JSON.stringify({ keys: await edge.services.a2a.publicKeys() });
  return jsonResponse(200, text, { ...publicHead(), 'Access-Control-Allow-Origin': '*' });
}

function metrics(edge: Edge, gauges: () => Record<string, number>): Response {
  const text = edge.metrics.text({
    berth_event_streams_open: edge.streams.size,
    berth_request_body_bytes: edge.flight.bytes,
    ...gauges(),
  });
  const head = newHead(newId());
  head['Content-Type'] = 'text/plain; version=0.0.4; charset=utf-8';
  return new Response(text, { headers: head });
}

const styleHash = createHash('sha256').update(style).digest('base64');

/** Pages run no script and load nothing: the one inline style sheet is named by its hash. */
const policy = `default-src 'none'; style-src 'sha256-${styleHash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

function html(page: FixedBody): Response {
  return new Response(page, {
    headers: {
      ...publicHead(),
      'Content-Type': 'text/html; charset=utf-8',
      'Content-Security-Policy': policy,
      'Referrer-Policy': 'no-referrer',
      'X-Frame-Options': 'DENY',
      'Cross-Origin-Opener-Policy': 'same-origin',
    },
  });
}

function publicHead(): Head {
  return { ...newHead(newId()), 'Cache-Control': 'public, max-age=300' };
}
