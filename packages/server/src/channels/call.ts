import { parsedDocument } from './documents.ts';
import type { HttpCall, HttpReply, SendOutcome, TokenGrant } from '../domain/ports/channel.ts';
import { retryAfterMs } from '../domain/retry-after.ts';
import { textAt } from './body.ts';

export function jsonCall(
  method: HttpCall['method'],
  url: string,
  body: unknown,
  headers: Record<string, string> = {},
  token: TokenGrant | null = null,
): HttpCall {
  return {
    method,
    url,
    headers: { 'content-type': 'application/json; charset=utf-8', accept: 'application/json', ...headers },
    body: JSON.stringify(body),
    token,
  };
}

export function formCall(
  url: string,
  fields: [string, string][],
  headers: Record<string, string> = {},
): HttpCall {
  return {
    method: 'POST',
    url,
    headers: { 'content-type': 'application/x-www-form-urlencoded', accept: 'application/json', ...headers },
    body: new URLSearchParams(fields).toString(),
    token: null,
  };
}

export function getCall(
  url: string,
  headers: Record<string, string> = {},
  token: TokenGrant | null = null,
): HttpCall {
  return { method: 'GET', url, headers: { accept: 'application/json', ...headers }, body: null, token };
}

export const bearer = (token: string | undefined): Record<string, string> => ({
  authorization: `Bearer ${token ?? ''}`,
});

export const basic = (user: string, password: string): Record<string, string> => ({
  authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`,
});

/** One segment of a path: nothing in it can leave its place. */
export const segment = (text: string | number): string =>
  encodeURIComponent(text).replace(/^\.{1,2}$/, '%2E');

export function readJson(reply: HttpReply): unknown {
  return parsedDocument(reply.body.toString());
}

/** What the status alone says: 2xx sent, 408, 425, 429 and 5xx try again, all else failed. */
export function readStatus(reply: HttpReply, idPath: (string | number)[] = []): SendOutcome {
  const value = readJson(reply);
  if (reply.status >= 200 && reply.status < 300) {
    return { outcome: 'sent', externalId: idPath.length > 0 ? textAt(value, ...idPath) : null };
  }
  const reason = `The provider answered with status ${reply.status}.`;
  if (reply.status === 429 || reply.status === 408 || reply.status === 425 || reply.status >= 500) {
    return {
      outcome: 'retry',
      afterMs: retryAfterMs(reply.headers),
      reason,
      isTooMany: reply.status === 429,
    };
  }
  return { outcome: 'failed', reason };
}

/** For a provider's clock that differs from ours, when it is asked what came since. */
const clockMs = 300_000;

/** Whether a time that a provider tells is from before; false for what is no time. */
export const isBefore = (told: string | null, beganAt: Date): boolean =>
  Date.parse(told ?? '') < beganAt.getTime() - clockMs;

/** The same look-up for another page of what it finds. */
export function withQuery(call: HttpCall, name: string, value: string): HttpCall {
  const url = new URL(call.url);
  url.searchParams.set(name, value);
  return { ...call, url: url.href };
}
