import { createHash } from 'node:crypto';
import { DomainError } from '../../domain/errors.ts';
import type { HostMount, PublicCall } from '../hosts/host-edge.ts';
import { agentCard, cardJson } from './card.ts';
import { failureOf, restErrorOf } from './errors.ts';
import { isCardPath, KEYS_PATH } from './paths.ts';
import { versionOf } from './versions.ts';

const MAX_AGE_SECONDS = 300;

/** An agent's card and the keys that it is signed with, for everybody (A2A 1.0, section 8). */
export function cardMount(keysUrl: string): HostMount {
  return {
    name: 'a2a-card',
    owns: isCardPath,
    isPublic: () => true,
    handlePublic: (call) => answer(call, keysUrl),
    handle: (call) => answer(call, keysUrl),
    refuse: (error, requestId) => ({ body: restErrorOf(failureOf(error, requestId)) }),
  };
}

async function answer(call: PublicCall, keysUrl: string): Promise<Response> {
  try {
    if (call.method !== 'GET' && call.method !== 'HEAD')
      throw new DomainError('method_not_allowed', 'This path takes GET only.');
    if (call.path === KEYS_PATH) return await keys(call);
    const version = versionOf(call.header('a2a-version'), call.query);
    const card = agentCard(call);
    return cached(call, await cardJson(card, version, keysUrl, call.services.a2a), call.agent.updatedAt);
  } catch (error) {
    const failure = failureOf(error, call.requestId);
    if (failure.cause !== undefined)
      call.log.error('request failed', { requestId: call.requestId, cause: failure.cause });
    if (failure.httpStatus === 405) call.head['Allow'] = 'GET, HEAD';
    call.head['Vary'] = vary(call);
    call.head['Content-Type'] = 'application/json';
    return new Response(JSON.stringify(restErrorOf(failure)), {
      status: failure.httpStatus,
      headers: call.head,
    });
  }
}

async function keys(call: PublicCall): Promise<Response> {
  return cached(call, { keys: await call.services.a2a.publicKeys() }, null);
}

function vary(call: PublicCall): string {
  return [call.head['Vary'], 'A2A-Version'].filter(Boolean).join(', ');
}

/** RFC 9110, section 13: the tag is of the content, without its signatures, which differ each time they are made. */
function cached(call: PublicCall, body: Record<string, unknown>, changedAt: Date | null): Response {
  const { signatures: _, ...tagged } = body;
  const etag = `"${createHash('sha256').update(JSON.stringify(tagged)).digest('base64url').slice(0, 22)}"`;
  const { head } = call;
  head['Cache-Control'] = `public, max-age=${MAX_AGE_SECONDS}`;
  head['ETag'] = etag;
  head['Vary'] = vary(call);
  if (changedAt) head['Last-Modified'] = changedAt.toUTCString();
  if (isFresh(call, etag, changedAt)) return new Response(null, { status: 304, headers: head });
  head['Content-Type'] = 'application/json';
  const text = JSON.stringify(body);
  head['Content-Length'] = String(Buffer.byteLength(text));
  return new Response(call.method === 'HEAD' ? null : text, { status: 200, headers: head });
}

function isFresh(call: PublicCall, etag: string, changedAt: Date | null): boolean {
  const match = call.header('if-none-match');
  if (match !== undefined)
    return match.split(',').some((one) => ['*', etag].includes(one.trim().replace(/^W\//, '')));
  const since = Date.parse(call.header('if-modified-since') ?? '');
  return changedAt !== null && !Number.isNaN(since) && Math.floor(changedAt.getTime() / 1000) * 1000 <= since;
}
