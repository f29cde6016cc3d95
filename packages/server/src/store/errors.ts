import { isDatabaseAway } from '../domain/database-away.ts';
import { DomainError } from '../domain/errors.ts';

/** `unavailable` when the database could not be asked at all; null for any other error, which keeps its meaning. */
export function asUnavailable(error: unknown): DomainError | null {
  if (!isDatabaseAway(error)) return null;
  return new DomainError('unavailable', 'The database cannot be reached; try again in a moment.', {
    retryAfterSeconds: 1,
    cause: error,
  });
}

/** PostgreSQL's `unique_violation`: there is a row of this key already. */
export function isUniqueViolation(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '23505';
}
