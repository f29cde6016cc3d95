import { parseAddress } from '../../domain/address-ranges.ts';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import type { Cell, RateLimit } from '../../services/gcra.ts';
import { takeOne } from '../../services/gcra.ts';

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
  const cells = new Map<string, Cell>();
  return (agentId, address) => {
    const name = `${agentId} ${clientOf(address)}`;
    let cell = cells.get(name);
    if (!cell) {
      if (cells.size >= maxCells) {
        const nowMs = now();
        for (const [other, { fullAtMs }] of cells) if (fullAtMs <= nowMs) cells.delete(other);
        // A flood from very many addresses: forgetting them is better than growing without end.
        if (cells.size >= maxCells) cells.clear();
      }
      cell = { fullAtMs: 0 };
      cells.set(name, cell);
    }
    const { allowed, retryAfterSeconds } = takeOne(cell, limit, now());
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
