import { keepNewest } from '../domain/keep-newest.ts';
import { parseKeyValue } from '../domain/api-key-value.ts';
import { DomainError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import type { Doorbell } from '../domain/ports/doorbell.ts';
import type { ApiKeyStore, KeyIdentity } from '../store/api-keys.ts';
import type { AuthService, Caller } from './api.ts';

/** A key that was found active is asked for again after this time, so that no lost ring can keep a revoked one alive. */
const TRUST_ACTIVE_MS = 1000;
/** Values are random, so that what is no key now does not become one. */
const TRUST_UNKNOWN_MS = 30_000;
const MAX_ENTRIES = 10_000;
const TOUCH_EVERY_MS = 60_000;
const TOUCH_DELAY_MS = 1000;

interface Entry {
  caller: Caller;
  expiresAtMs: number;
  lastUsedMs: number;
  trustUntilMs: number;
}

export interface AuthDependencies {
  keys: ApiKeyStore;
  /** Runs a read apart from any transaction of the caller. */
  outside: <T>(work: () => T) => T;
  doorbell: Doorbell;
  /** Of keys without a limit of their own. */
  rateLimit: { quota: number; windowSeconds: number };
  log: Log;
  now?: () => number;
}

export interface Auth extends AuthService {
  /** Forgets revoked keys here and on the other replicas; to be called after the commit. */
  forget(hashes: string[]): void;
  /** Writes what is known of last uses. */
  close(): Promise<void>;
}

export function createAuth(deps: AuthDependencies): Auth {
  const now = deps.now ?? Date.now;
  const active = new Map<string, Entry>();
  const unknownUntilMs = new Map<string, number>();
  const reading = new Map<string, Promise<Entry | null>>();
  const uses = createUseRecorder(deps);
  // A read that was under way when something was forgotten may have seen the key before its end: it is not kept.
  let forgotten = 0;

  function forgetHere(hashes: string[]): void {
    forgotten += 1;
    for (const hash of hashes) {
      active.delete(hash);
      reading.delete(hash);
    }
  }

  deps.doorbell.on('keys', forgetHere);
  deps.doorbell.onReconnect(() => {
    forgetHere([...active.keys(), ...reading.keys()]);
  });

  async function read(hash: string): Promise<Entry | null> {
    const forgottenBefore = forgotten;
    const askedMs = now();
    const found = await deps.outside(() => deps.keys.findActive(hash));
    if (!found) {
      keepNewest(unknownUntilMs, hash, askedMs + TRUST_UNKNOWN_MS, MAX_ENTRIES);
      return null;
    }
    const entry = entryOf(found, askedMs + TRUST_ACTIVE_MS, deps.rateLimit);
    if (forgotten === forgottenBefore) keepNewest(active, hash, entry, MAX_ENTRIES);
    return entry;
  }

  function readOnce(hash: string): Promise<Entry | null> {
    const same = reading.get(hash);
    if (same) return same;
    const promise = read(hash).finally(() => {
      if (reading.get(hash) === promise) reading.delete(hash);
    });
    reading.set(hash, promise);
    return promise;
  }

  function noteUse(entry: Entry, atMs: number): void {
    if (atMs - entry.lastUsedMs < TOUCH_EVERY_MS) return;
    entry.lastUsedMs = atMs;
    uses.record(entry.caller.keyId, atMs);
  }

  return {
    known(hash) {
      const entry = active.get(hash);
      const atMs = now();
      if (!entry || entry.trustUntilMs <= atMs || entry.expiresAtMs <= atMs) return null;
      noteUse(entry, atMs);
      return entry.caller;
    },

    async authenticate(value) {
      if (value === null || value === '') throw keyMissing();
      const parts = parseKeyValue(value);
      if (!parts) throw keyInvalid();
      const atMs = now();
      if ((unknownUntilMs.get(parts.hash) ?? 0) > atMs) throw keyInvalid();
      const cached = active.get(parts.hash);
      const entry = cached && cached.trustUntilMs > atMs ? cached : await readOnce(parts.hash);
      if (!entry || entry.expiresAtMs <= now()) throw keyInvalid();
      noteUse(entry, atMs);
      return entry.caller;
    },

    forget(hashes) {
      forgetHere(hashes);
      for (const hash of hashes) deps.doorbell.ring('keys', hash);
    },

    close: () => uses.flush(),
  };
}

function entryOf(
  found: KeyIdentity,
  trustUntilMs: number,
  fallback: { quota: number; windowSeconds: number },
): Entry {
  const { keyId, orgId, agentId, scope, binding } = found;
  const rateLimit =
    found.quota === null || found.windowSeconds === null
      ? fallback
      : { quota: found.quota, windowSeconds: found.windowSeconds };
  return {
    caller: Object.freeze({ keyId, orgId, agentId, scope, binding, rateLimit }),
    expiresAtMs: found.expiresAt?.getTime() ?? Infinity,
    lastUsedMs: found.lastUsedAt?.getTime() ?? 0,
    trustUntilMs,
  };
}

/** Collects last uses and writes them in one statement, off the way of the requests. */
function createUseRecorder(deps: Pick<AuthDependencies, 'keys' | 'outside' | 'log'>) {
  let pending = new Map<string, number>();
  let timer: NodeJS.Timeout | null = null;
  let writing: Promise<void> = Promise.resolve();

  async function write(): Promise<void> {
    const uses = [...pending].map(([keyId, ms]) => ({ keyId, at: new Date(ms) }));
    pending = new Map();
    if (uses.length === 0) return;
    try {
      await deps.keys.touch(uses);
    } catch (error) {
      deps.log.warn('The last use of keys could not be written.', {
        keys: uses.length,
        error: String(error),
      });
    }
  }

  function flush(): Promise<void> {
    if (timer) clearTimeout(timer);
    timer = null;
    writing = writing.then(write);
    return writing;
  }

  return {
    record(keyId: string, atMs: number): void {
      pending.set(keyId, atMs);
      // Outside, because a timer keeps the async context it was set in, and with it a transaction long over.
      timer ??= deps.outside(() => setTimeout(flush, TOUCH_DELAY_MS).unref());
    },
    flush: () => deps.outside(flush),
  };
}

const keyMissing = () =>
  new DomainError('key_missing', 'An API key is needed: send "Authorization: Bearer svc_live_…".');

/** One text for whatever is wrong with a key, so that nobody learns which keys once existed. */
const keyInvalid = () =>
  new DomainError('key_invalid', 'The API key is not valid: it is mistyped, expired or revoked.');
