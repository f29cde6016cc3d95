import { DomainError } from '../domain/errors.ts';

/** Codes of Node and postgres.js for a connection that could not be made or was lost. */
const CONNECTION_CODES = new Set([
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
  'CONNECT_TIMEOUT',
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ETIMEDOUT',
  'EPIPE',
]);

/**
 * SQLSTATE classes (PostgreSQL manual, appendix A) that say "not now": 08 connection, 53 resources (full disk, too
 * many connections), 57P operator intervention (shutting down, starting up), and a server that became read-only.
 */
const UNAVAILABLE_STATES = /^(08...|53...|57P0.|25006)$/;

/** `unavailable` when the database could not be asked at all; null for any other error, which keeps its meaning. */
export function asUnavailable(error: unknown): DomainError | null {
  const { code, name } = (error ?? {}) as { code?: unknown; name?: unknown };
  if (typeof code !== 'string') return null;
  const lost = name === 'PostgresError' ? UNAVAILABLE_STATES.test(code) : CONNECTION_CODES.has(code);
  if (!lost) return null;
  return new DomainError('unavailable', 'The database cannot be reached; try again in a moment.', {
    retryAfterSeconds: 1,
    cause: error,
  });
}
