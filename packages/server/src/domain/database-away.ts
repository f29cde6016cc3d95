/** Codes of Node and of the driver for a connection that could not be made or was lost. */
const CONNECTION_CODES = new Set([
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
  'CONNECT_TIMEOUT',
  'ANSWER_TIMEOUT',
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ETIMEDOUT',
  'EPIPE',
]);
/** These say so only of a connection: files and programs can be missing too. */
const CONNECT_ONLY_CODES = new Set(['ENOENT', 'ENOTFOUND', 'EAI_AGAIN']);

/**
 * SQLSTATE classes (PostgreSQL manual, appendix A) that say "not now": 08 connection, 53 resources (full disk, too
 * many connections), 57P operator intervention (shutting down, starting up), and a server that became read-only.
 */
const UNAVAILABLE_STATES = /^(08...|53...|57P0.|25006)$/;

/** Whether an error says that the database could not be asked at all. */
export function isDatabaseAway(error: unknown): boolean {
  const { code, name, syscall } = (error ?? {}) as { code?: unknown; name?: unknown; syscall?: unknown };
  if (typeof code !== 'string') return false;
  if (name === 'PostgresError') return UNAVAILABLE_STATES.test(code);
  if (CONNECT_ONLY_CODES.has(code)) return syscall === 'connect' || syscall === 'getaddrinfo';
  return CONNECTION_CODES.has(code);
}

/**
 * Whether the database has withdrawn what was asked because others changed the same rows at the same moment (deadlock,
 * serialization failure): nothing of it has taken effect, and the same may be asked again.
 */
export function isWithdrawn(error: unknown): boolean {
  return /^(40P01|40001)$/.test(stateOf(error));
}

/** Whether a value is to blame, which no other attempt makes storable (SQLSTATE class 22, data exception). */
export function isUnstorable(error: unknown): boolean {
  return stateOf(error).startsWith('22');
}

/** Of these, text that no text of the database can hold, such as one with U+0000. */
export function isUnstorableText(error: unknown): boolean {
  return /^(22021|22P05)$/.test(stateOf(error));
}

/** The SQLSTATE that PostgreSQL itself has told; empty for all else. */
function stateOf(error: unknown): string {
  const { code, name } = (error ?? {}) as { code?: unknown; name?: unknown };
  return name === 'PostgresError' && typeof code === 'string' ? code : '';
}
