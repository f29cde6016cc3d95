import type { ErrorCode } from '../../domain/errors.ts';

/** API contract, section 3. The compiler holds the table complete. */
export const statusOf: Record<ErrorCode, number> = {
  invalid_request: 400,
  invalid_json: 400,
  invalid_cursor: 400,
  key_missing: 401,
  key_invalid: 401,
  signature_invalid: 401,
  budget_exceeded: 402,
  scope_insufficient: 403,
  binding_insufficient: 403,
  not_found: 404,
  method_not_allowed: 405,
  conflict: 409,
  conversation_busy: 409,
  idempotency_in_progress: 409,
  precondition_failed: 412,
  body_too_large: 413,
  unsupported_media_type: 415,
  idempotency_key_reused: 422,
  rate_limited: 429,
  too_many_sandboxes: 429,
  queue_full: 429,
  internal: 500,
  unavailable: 503,
};
