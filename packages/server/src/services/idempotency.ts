import type { Box } from '../domain/box.ts';
import { DomainError } from '../domain/errors.ts';
import type { Principal } from '../domain/nouns.ts';
import { idempotencyContext } from '../domain/seal-context.ts';
import type { Database } from '../store/database.ts';
import type { IdempotencyStore, KeptRequest } from '../store/idempotency.ts';
import type { IdempotencyService, OnceWork, StoredAnswer } from './api.ts';

export interface IdempotencyDependencies {
  db: Database;
  store: IdempotencyStore;
  box: Box;
  /** Held until the end of the transaction: what is sealed in it is sealed under a key that stays. */
  holdEncryptionKey: () => Promise<void>;
  /** How often work with a lease renews it; well below the store's `leaseSeconds`. */
  renewMs: number;
}

export interface Idempotency extends IdempotencyService {
  /** Forgets answers older than a day; returns how many. To be called now and then. */
  purge(): Promise<number>;
}

type Once = { answer: StoredAnswer; replayed: boolean };

/** One request, done once (API contract, section 4, `Idempotency-Key`). */
export function createIdempotency(deps: IdempotencyDependencies): Idempotency {
  const { db, store, box } = deps;

  /** The stored answer; null when there is none and the work may be done. Call it under the lock. */
  function replay(
    p: Principal,
    key: string,
    hash: string,
    work: OnceWork,
    kept: KeptRequest | null,
  ): Once | null {
    if (!kept) return null;
    if (kept.requestHash !== hash) {
      throw new DomainError(
        'idempotency_key_reused',
        'This Idempotency-Key was used for another request; use a new one.',
      );
    }
    if (kept.abandoned) {
      if (work.lease && work.repeatable) return null;
      throw interrupted();
    }
    if (kept.withdrawn) throw withdrawn();
    if (!kept.answer) throw inProgress();
    const { status, headers, secretOf } = kept.answer;
    const body = box.open(kept.answer, idempotencyContext(p.keyId, key));
    return { answer: { status, headers, secretOf, body }, replayed: true };
  }

  async function keep(p: Principal, key: string, hash: string, answer: StoredAnswer): Promise<void> {
    await deps.holdEncryptionKey();
    const sealed = box.seal(answer.body, idempotencyContext(p.keyId, key));
    const { status, headers, secretOf } = answer;
    await store.keep(p.keyId, key, hash, { status, headers, secretOf, ...sealed });
  }

  async function lockAndFind(p: Principal, key: string): Promise<KeptRequest | null> {
    if (!(await store.tryLock(p.keyId, key))) throw inProgress();
    // A statement of its own: it sees what the lock's last holder has committed.
    return store.find(p.keyId, key);
  }

  /** A refusal has rolled its transaction back, so that its answer is kept in one of its own. */
  async function keepRefusal(p: Principal, key: string, hash: string, error: unknown, work: OnceWork) {
    const refusal = work.refusal(error);
    if (!refusal) return false;
    await db.tx(async () => {
      const kept = await lockAndFind(p, key);
      if (!kept?.answer) await keep(p, key, hash, refusal);
    });
    return true;
  }

  async function inTransaction(p: Principal, key: string, hash: string, work: OnceWork): Promise<Once> {
    let began = false;
    try {
      return await db.tx(async () => {
        const before = replay(p, key, hash, work, await lockAndFind(p, key));
        if (before) return before;
        began = true;
        const answer = await work.run();
        await keep(p, key, hash, answer);
        return { answer, replayed: false };
      });
    } catch (error) {
      if (began) await keepRefusal(p, key, hash, error, work);
      throw error;
    }
  }

  async function underLease(p: Principal, key: string, hash: string, work: OnceWork): Promise<Once> {
    const before = await db.tx(async () => {
      const found = replay(p, key, hash, work, await lockAndFind(p, key));
      if (!found) await store.take(p.keyId, key, hash);
      return found;
    });
    if (before) return before;
    // A renewal that fails is made good by the next one; if none succeeds, the lease rightly runs out.
    const renewal = setInterval(() => void store.renew(p.keyId, key).catch(() => {}), deps.renewMs);
    renewal.unref();
    let isDone = false;
    try {
      const answer = await work.run();
      isDone = true;
      await db.tx(() => keep(p, key, hash, answer));
      return { answer, replayed: false };
    } catch (error) {
      // Its answer is lost, and whoever asks again must not have it done again.
      if (isDone && !work.repeatable) await store.abandon(p.keyId, key);
      else if (!(await keepRefusal(p, key, hash, error, work))) await store.release(p.keyId, key);
      throw error;
    } finally {
      clearInterval(renewal);
    }
  }

  return {
    once: (p, key, hash, work) =>
      work.lease ? underLease(p, key, hash, work) : inTransaction(p, key, hash, work),
    purge: () => store.purge(),
  };
}

function inProgress(): DomainError {
  return new DomainError(
    'idempotency_in_progress',
    'A request with this Idempotency-Key is still being worked on; try again shortly.',
    { retryAfterSeconds: 1 },
  );
}

function interrupted(): DomainError {
  return new DomainError(
    'idempotency_interrupted',
    'The work of this Idempotency-Key was broken off: it may have begun, and is not done again. Look what became of it before you send it with another key.',
  );
}

function withdrawn(): DomainError {
  return new DomainError(
    'secret_withdrawn',
    'The first answer to this Idempotency-Key held a secret that has been revoked, replaced or deleted since; it is no longer kept. Use a new key to make another.',
  );
}
