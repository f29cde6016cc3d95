import type { IncomingMessage, ServerResponse } from 'node:http';
import { newId } from '../../domain/ids.ts';
import type { RateVerdict } from '../../services/api.ts';
import type { Edge } from './edge.ts';
import { rateLimitLeft, rateLimitPolicy } from './gate.ts';
import type { LastKeys } from './last-keys.ts';
import { createLastKeys } from './last-keys.ts';
import type { KnownCall, KnownJson, Route } from './route.ts';
import type { Prepared } from './serve.ts';

/** Answers, or leaves the request as it was and gives false. */
export type AnswerKnown = (incoming: IncomingMessage, outgoing: ServerResponse) => boolean;

interface KnownRoute extends Prepared {
  pattern: RegExp;
  known: (call: KnownCall) => KnownJson | null;
}

const PLAIN_HOST = /^[a-z0-9._-]+(?::\d{1,5})?$/;

/**
 * The short way of a request whose key and whose answer are known in memory, for as long as `auth` and the service trust
 * what they know (docs/decisions/0166-short-way-of-known-answers.md): no promise is made on it, and no Request and
 * Response. Whatever it does not know for sure, and every refusal, is left to `serve`, which answers in the same way.
 */
export function createKnownAnswers(all: readonly Prepared[], edge: Edge): AnswerKnown {
  const routes = all.flatMap((prepared) => knownRoute(prepared));
  const lastKeys = createLastKeys();

  return (incoming, outgoing) => {
    const { method, url = '', headers } = incoming;
    if (method !== 'GET' || edge.draining) return false;
    for (const route of routes) {
      const match = route.pattern.exec(url);
      if (match && PLAIN_HOST.test(headers.host ?? ''))
        return answer(route, match, incoming, outgoing, edge, lastKeys);
    }
    return false;
  };
}

function knownRoute(prepared: Prepared): KnownRoute[] {
  const { route } = prepared;
  const known = route.known?.bind(route);
  return known ? [{ ...prepared, known, pattern: patternOf(route) }] : [];
}

/** Ids only, and no query: everything else has to be read with care. */
function patternOf(route: Route): RegExp {
  return new RegExp(`^${route.path.replaceAll('.', '\\.').replace(/\{\w+\}/g, '([0-9a-f-]{36})')}$`);
}

function answer(
  { known, paramNames, stats }: KnownRoute,
  match: RegExpExecArray,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  edge: Edge,
  lastKeys: LastKeys,
): boolean {
  const { services, addresses, log } = edge;
  const startedAt = performance.now();
  const hash = lastKeys.hashOf(incoming);
  const caller = hash === null ? null : services.auth.known(hash);
  if (!caller) return false;
  lastKeys.keep(incoming, hash!);
  const params: Record<string, string> = {};
  for (let index = 0; index < paramNames.length; index += 1) params[paramNames[index]!] = match[index + 1]!;
  const body = known({ services, addresses, caller, params });
  if (body === null) return false;
  const verdict = services.rateLimit.take(caller.keyId, caller.rateLimit);
  if (!verdict.allowed) return false;
  const requestId = newId();
  // Text without other characters need not be measured again, as UTF-8, for the socket.
  const encoding = body.bytes === body.json.length ? 'latin1' : 'utf8';
  outgoing.writeHead(200, fields(requestId, verdict, body.bytes)).end(body.json, encoding);
  const ms = performance.now() - startedAt;
  stats.observe(200, ms / 1000);
  const shownMs = Math.round(ms * 100) / 100;
  const { keyId } = caller;
  log.debug('request', { requestId, status: 200, ms: shownMs, keyId, method: 'GET', path: incoming.url });
  return true;
}

/** Those of `newHead` and `admit`, in one list: an object of names would be made and taken apart again. */
function fields(requestId: string, verdict: RateVerdict, bytes: number): string[] {
  return [
    'X-Request-Id',
    requestId,
    'Cache-Control',
    'no-store',
    'X-Content-Type-Options',
    'nosniff',
    'RateLimit-Policy',
    rateLimitPolicy(verdict),
    'RateLimit',
    rateLimitLeft(verdict),
    'Content-Type',
    'application/json',
    'Content-Length',
    String(bytes),
  ];
}
