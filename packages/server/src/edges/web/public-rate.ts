import { parseAddress } from '../../domain/address-ranges.ts';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import type { RateLimit } from '../../services/gcra.ts';
import { BoundedCells, takeOne } from '../../services/gcra.ts';

export const publicLimit: RateLimit = {
  quota: limits.webPublicRequests,
  windowSeconds: limits.webPublicWindowSeconds,
};
const maxCells = 20_000;

/**
 * How often somebody without a key may ask a public server of an agent: so many requests from an address to one agent, as
 * this node counts them. Throws `rate_limited`.
 */
export function createPublicRate(
  limit: RateLimit,
  now: () => number = Date.now,
): (agentId: string, address: string) => void {
  const cells = new BoundedCells(maxCells);
  return (agentId, address) => {
    const nowMs = now();
    const cell = cells.of(`${agentId} ${clientOf(address)}`, nowMs);
    const { allowed, retryAfterSeconds } = takeOne(cell, limit, nowMs);
    if (allowed) return;
    throw new DomainError(
      'rate_limited',
      `An address may make ${limit.quota} requests in ${limit.windowSeconds} seconds here; try again in ${retryAfterSeconds} s.`,
      { retryAfterSeconds },
    );
  };
}

/** Of IPv6 the first 64 bits, since a client has all addresses that begin so (RFC 4291, section 2.5.4). */
function clientOf(address: string): string {
  const parsed = parseAddress(address);
  if (parsed?.version !== 6) return address;
  return (parsed.value >> 64n).toString(16);
}
