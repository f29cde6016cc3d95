import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { Forgery, Verdict } from '../domain/ports/channel.ts';

export const genuine: Verdict = { verdict: 'genuine' };

export function forged(reason: Forgery, message: string): Verdict {
  return { verdict: 'forged', reason, message };
}

/** By a key that the document at this URL does not name. */
export const unnamed = (url: string, message: string): Verdict => ({
  verdict: 'forged',
  reason: 'signature_wrong',
  message,
  unnamedIn: url,
});

export function hmac(
  algorithm: 'sha1' | 'sha256' | 'sha512',
  key: string | Buffer,
  ...parts: (string | Buffer)[]
): Buffer {
  const mac = createHmac(algorithm, key);
  for (const part of parts) mac.update(part);
  return mac.digest();
}

export function sha256(...parts: (string | Buffer)[]): Buffer {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
}

/** In constant time. A different length is no secret: it is the length of the algorithm's output. */
export function sameBytes(one: Buffer, other: Buffer): boolean {
  return one.length === other.length && timingSafeEqual(one, other);
}

/** For secrets that are compared as they are: hashed first, so that not even the length shows. */
export function sameText(one: string, other: string): boolean {
  return timingSafeEqual(sha256(one), sha256(other));
}

/** The present signing secret and, while it still holds, the one before. */
export function secretsOf(present: string | undefined, previous: string | null): string[] {
  return [present, previous].filter(
    (secret) => secret !== undefined && secret !== null && secret !== '',
  ) as string[];
}

const hex = /^[0-9a-f]+$/i;

/** Whether one of the secrets made this HMAC-SHA256 in hex over the parts, joined. */
export function signedInHex(secrets: string[], signature: string, ...parts: (string | Buffer)[]): boolean {
  if (!hex.test(signature)) return false;
  const given = Buffer.from(signature, 'hex');
  return secrets.some((secret) => sameBytes(hmac('sha256', secret, ...parts), given));
}

/** Unix seconds as senders write them; anything else than digits is refused, since `Number` would read `1e3` and ``. */
export function readSeconds(text: string): number | null {
  return /^\d{1,12}$/.test(text) ? Number(text) : null;
}

/** Null when `seconds` is within the window around now. */
export function staleness(seconds: number | null, nowMs: number, windowSeconds: number): Verdict | null {
  if (seconds === null) {
    return forged('signature_malformed', 'The time in the signature is not a number of seconds.');
  }
  if (Math.abs(nowMs / 1000 - seconds) <= windowSeconds) return null;
  return forged(
    'signature_stale',
    `The signature is more than ${windowSeconds} seconds away from the clock of this service.`,
  );
}
