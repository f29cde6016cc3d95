import { createHash } from 'node:crypto';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import type { StoredAnswer } from '../../services/api.ts';
import type { Answer } from './answer.ts';
import { errorBody } from './errors.ts';
import { statusOf } from './status.ts';
import { invalidRequest } from './validate.ts';

/** The `Idempotency-Key` header (API contract, section 4); null when there is none. */
export function idempotencyKey(header: string | undefined): string | null {
  if (header === undefined) return null;
  if (/^[\x20-\x7e]+$/.test(header) && header.length <= limits.idempotencyKeyChars) return header;
  throw invalidRequest([
    {
      path: 'Idempotency-Key',
      message: `must have 1 to ${limits.idempotencyKeyChars} printable ASCII characters`,
    },
  ]);
}

/**
 * What must be the same for a replay: the call and its checked input. The check has put the fields in the schema's
 * order, so that a client may write them in any.
 */
export function requestHash(call: string, input: unknown): string {
  return createHash('sha256').update(call).update('\n').update(JSON.stringify(input)).digest('base64url');
}

export function store(answer: Answer): StoredAnswer {
  return {
    status: answer.status,
    headers: answer.headers ?? {},
    secretOf: answer.secretOf ?? null,
    body: answer.body === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(answer.body)),
  };
}

/** Refusals that a repeated request should get past once the circumstances have changed. */
const passing = new Set([402, 409, 422, 429]);

/** The answer to keep when the work has thrown; null = none, so that a repeated request tries anew. */
export function storeRefusal(error: unknown): StoredAnswer | null {
  if (!(error instanceof DomainError)) return null;
  const status = statusOf[error.code];
  if (status >= 500 || passing.has(status)) return null;
  return store({ status, body: errorBody(error) });
}
