import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { LookupFunction } from 'node:net';
import type { HttpCall, HttpReply, TokenGrant } from '../domain/ports/channel.ts';
import { paceAnswer } from '../domain/paced-answers.ts';
import { keepNewest } from '../domain/keep-newest.ts';
import { retryAfterMs } from '../domain/retry-after.ts';
import { UrlRefused, type UrlGuard } from '../domain/url-guard.ts';

export interface CallLimits {
  timeoutMs: number;
  maxBytes: number;
}

/** Makes calls that data of users decided on: only to addresses that the guard let through, and without redirects. */
export interface GuardedCaller {
  /** Rejects when there is no answer; UrlRefused when there may be none; TryLater when there is no token for it now. Any status is an answer. */
  call(call: HttpCall, limits?: Partial<CallLimits>): Promise<HttpReply>;
}

/** Nothing of the request has left: whatever was to be done has not been done. */
export class CallNotSent extends Error {}

/** The provider did nothing, and asks to be called again later: no fault of what it was asked for. */
export class TryLater extends Error {
  /** The provider's own word, else null. */
  readonly afterMs: number | null;
  /** It wants fewer calls at once. */
  readonly isTooMany: boolean;

  constructor(message: string, { afterMs, isTooMany }: { afterMs: number | null; isTooMany: boolean }) {
    super(message);
    this.afterMs = afterMs;
    this.isTooMany = isTooMany;
  }
}

/** What was to be read is not there, since the provider is asked too much. */
export function requireNotTooMany({ status, headers }: Pick<HttpReply, 'status' | 'headers'>): void {
  if (status !== 429) return;
  const told = { afterMs: retryAfterMs(headers), isTooMany: true };
  throw new TryLater('The provider answered with status 429.', told);
}

const usual: CallLimits = { timeoutMs: 15_000, maxBytes: 4 * 1024 * 1024 };
/** Tokens are kept for less than the shortest time that a provider gives them. */
const tokenMs = 8 * 60_000;
const maxTokens = 10_000;

/** A token from one address is never sent for a grant of another one: the channel may have got another API since. */
const keyOf = (grant: TokenGrant): string => `${grant.cacheKey} ${grant.call.url}`;

export function createGuardedCaller(guard: UrlGuard, now: () => number = Date.now): GuardedCaller {
  const tokens = new Map<string, { token: string; untilMs: number }>();

  async function tokenOf(grant: TokenGrant, limits: CallLimits): Promise<string> {
    const key = keyOf(grant);
    const kept = tokens.get(key);
    if (kept && kept.untilMs > now()) return kept.token;
    const reply = await send(grant.call, limits);
    requireNotTooMany(reply);
    const value = reply.status < 300 ? (JSON.parse(reply.body.toString()) as Record<string, unknown>) : {};
    const token = value[grant.tokenField];
    if (typeof token !== 'string') throw new Error(`No access token was given (status ${reply.status}).`);
    keepNewest(tokens, key, { token, untilMs: now() + tokenMs }, maxTokens);
    return token;
  }

  async function send(call: HttpCall, limits: CallLimits): Promise<HttpReply> {
    const { url, addresses } = await guard.check(call.url, ['https:', 'http:']).catch(notSent);
    const headers = { ...call.headers };
    if (call.token) {
      headers['authorization'] = `Bearer ${await tokenOf(call.token, limits).catch(notSent)}`;
    }
    return exchange(call, url, addresses[0]!, headers, limits);
  }

  return {
    async call(call, limits = {}) {
      const reply = await send(call, { ...usual, ...limits });
      // A token may be withdrawn before its time.
      if (reply.status === 401 && call.token) tokens.delete(keyOf(call.token));
      return reply;
    },
  };
}

function notSent(error: unknown): never {
  if (error instanceof UrlRefused || error instanceof TryLater) throw error;
  const message = error instanceof Error ? error.message : 'The request could not be sent.';
  throw new CallNotSent(message, { cause: error });
}

function exchange(
  call: HttpCall,
  url: URL,
  address: string,
  headers: Record<string, string>,
  { timeoutMs, maxBytes }: CallLimits,
): Promise<HttpReply> {
  const family = address.includes(':') ? 6 : 4;
  // The address that was checked, never the name once more.
  const lookup: LookupFunction = (_name, options, done) =>
    options.all ? done(null, [{ address, family }]) : done(null, address, family);
  const make = url.protocol === 'https:' ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const request = make(
      url,
      { method: call.method, headers, lookup, agent: false, signal: AbortSignal.timeout(timeoutMs) },
      (response) => {
        const chunks: Buffer[] = [];
        let size = 0;
        response.on('data', (chunk: Buffer) => {
          size += chunk.length;
          if (size > maxBytes)
            return void request.destroy(new Error(`The answer is larger than ${maxBytes} bytes.`));
          chunks.push(chunk);
        });
        response.on('error', reject);
        response.on('end', () => {
          const pairs = Object.entries(response.headers).map(([name, value]): [string, string] => [
            name,
            String(value),
          ]);
          resolve({ status: response.statusCode ?? 0, headers: new Map(pairs), body: Buffer.concat(chunks) });
        });
      },
    );
    paceAnswer(request);
    let isConnected = false;
    request.on('socket', (socket) => {
      socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', () => (isConnected = true));
    });
    request.on('error', (error) => {
      reject(isConnected ? error : new CallNotSent(error.message, { cause: error }));
    });
    request.end(call.body ?? undefined);
  });
}
