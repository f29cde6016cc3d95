import type { Context } from 'hono';
import { DomainError } from '../../domain/errors.ts';
import type { Caller, RateVerdict, Services } from '../../services/api.ts';
import type { Head } from './answer.ts';
import { bearerToken } from './bearer.ts';
import type { Edge } from './edge.ts';
import type { Env } from './request.ts';
import { clientAddress, header } from './request.ts';

/**
 * Who calls, and whether it may call now. Writes the rate-limit fields into `head`. Throws `key_missing`,
 * `key_invalid`, `rate_limited`.
 */
export function admit(c: Context<Env>, edge: Edge, head: Head): Promise<Caller> {
  return admitKey(
    edge,
    () => bearerToken(header(c, 'authorization')),
    () => clientAddress(c, edge),
    head,
  );
}

interface Keyed {
  services: Pick<Services, 'auth' | 'rateLimit'>;
}

/** The same for whatever brings a key: `readKey` gives null when there is none, and may throw. */
export async function admitKey(
  edge: Keyed,
  readKey: () => string | null,
  address: () => string,
  head: Head,
): Promise<Caller> {
  const caller = await authenticate(edge, readKey, address);
  const verdict = edge.services.rateLimit.take(caller.keyId, caller.rateLimit);
  writeRateLimit(head, verdict);
  if (verdict.allowed) return caller;
  throw new DomainError(
    'rate_limited',
    `This key may make ${verdict.quota} requests in ${verdict.windowSeconds} seconds; try again in ${verdict.retryAfterSeconds} s.`,
    { retryAfterSeconds: verdict.retryAfterSeconds },
  );
}

/** draft-ietf-httpapi-ratelimit-headers: `q` in `w` seconds; `r` left, whole again after `t` seconds. */
export function writeRateLimit(head: Head, verdict: RateVerdict): void {
  head['RateLimit-Policy'] = rateLimitPolicy(verdict);
  head['RateLimit'] = rateLimitLeft(verdict);
}

export const rateLimitPolicy = ({ quota, windowSeconds }: RateVerdict): string =>
  `"default";q=${quota};w=${windowSeconds}`;

export const rateLimitLeft = ({ remaining, resetSeconds }: RateVerdict): string =>
  `"default";r=${remaining};t=${resetSeconds}`;

/**
 * A good key always passes: behind a proxy or a NAT many callers share an address, and one of them must not be able
 * to lock the others out by sending bad keys. Only the failures themselves are limited.
 */
async function authenticate(
  edge: Keyed,
  readKey: () => string | null,
  address: () => string,
): Promise<Caller> {
  try {
    return await edge.services.auth.authenticate(readKey());
  } catch (error) {
    if (!(error instanceof DomainError) || !error.code.startsWith('key_')) throw error;
    const waitSeconds = edge.services.rateLimit.authFailure(address());
    if (waitSeconds === null) throw error;
    throw new DomainError(
      'rate_limited',
      `Too many requests without a valid key came from this address; try again in ${waitSeconds} s.`,
      { retryAfterSeconds: waitSeconds },
    );
  }
}
