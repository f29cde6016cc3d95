import type { IncomingMessage, ServerResponse } from 'node:http';
import { newId } from '../../domain/ids.ts';
import { newHead } from './answer.ts';
import { bearerToken } from './bearer.ts';
import type { Edge } from './edge.ts';
import { writeRateLimit } from './gate.ts';
import type { KnownCall, Route } from './route.ts';
import type { Prepared } from './serve.ts';

/** Answers, or leaves the request as it was and gives false. */
export type AnswerKnown = (incoming: IncomingMessage, outgoing: ServerResponse) => boolean;

interface KnownRoute extends Prepared {
  pattern: RegExp;
  known: (call: KnownCall) => string | null;
}

const PLAIN_HOST = /^[a-z0-9._-]+(?::\d{1,5})?$/;

/**
 * The short way of a request whose key and whose answer are known in memory, for as long as `auth` and the service trust
 * what they know (docs/decisions/0166-short-way-of-known-answers.md): no promise is made on it, and no Request and
 * Response. Whatever it does not know for sure, and every refusal, is left to `serve`, which answers in the same way.
 */
export function createKnownAnswers(all: readonly Prepared[], edge: Edge): AnswerKnown {
  const routes = all.flatMap((prepared) => knownRoute(prepared));

  return (incoming, outgoing) => {
    const { method, url = '', headers } = incoming;
    if (method !== 'GET' || edge.draining || !PLAIN_HOST.test(headers.host ?? '')) return false;
    for (const route of routes) {
      const match = route.pattern.exec(url);
      if (match) return answer(route, match, incoming, outgoing, edge);
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
): boolean {
  const { services, addresses, log } = edge;
  const startedAt = performance.now();
  const caller = services.auth.known(tokenOf(incoming));
  if (!caller) return false;
  const params: Record<string, string> = {};
  for (const [index, name] of paramNames.entries()) params[name] = match[index + 1]!;
  const json = known({ services, addresses, caller, params });
  if (json === null) return false;
  const verdict = services.rateLimit.take(caller.keyId, caller.rateLimit);
  if (!verdict.allowed) return false;
  const requestId = newId();
  const head = newHead(requestId);
  writeRateLimit(head, verdict);
  head['Content-Type'] = 'application/json';
  head['Content-Length'] = String(Buffer.byteLength(json));
  outgoing.writeHead(200, head).end(json);
  const ms = performance.now() - startedAt;
  stats.observe(200, ms / 1000);
  const shownMs = Math.round(ms * 100) / 100;
  const { keyId } = caller;
  log.debug('request', { requestId, status: 200, ms: shownMs, keyId, method: 'GET', path: incoming.url });
  return true;
}

function tokenOf(incoming: IncomingMessage): string | null {
  try {
    return bearerToken(incoming.headers.authorization);
  } catch {
    return null;
  }
}
