import { isWithdrawn } from '../domain/database-away.ts';

const ATTEMPTS = 5;

/**
 * Does one statement or transaction again when the database has withdrawn it for the sake of others (deadlock):
 * nothing of it has taken effect. A delete that cascades locks rows in an order of its own, so it cannot keep out of the
 * way of those who work on them. Throws what the last attempt threw.
 */
export async function againIfWithdrawn<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (attempt >= ATTEMPTS || !isWithdrawn(error)) throw error;
    }
  }
}
