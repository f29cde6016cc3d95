/**
 * Every error that a caller can see, as one closed list (API contract, section 3). A wire maps a code to its own
 * status; the compiler holds each such table complete.
 */
export type ErrorCode =
  | 'invalid_request'
  | 'invalid_json'
  | 'invalid_cursor'
  | 'key_missing'
  | 'key_invalid'
  | 'signature_invalid'
  | 'budget_exceeded'
  | 'scope_insufficient'
  | 'binding_insufficient'
  | 'not_found'
  | 'method_not_allowed'
  | 'precondition_failed'
  | 'body_too_large'
  | 'unsupported_media_type'
  | 'conflict'
  | 'conversation_busy'
  | 'idempotency_in_progress'
  /** The work of the key was broken off, may have begun, and is not the kind that can be done again. */
  | 'idempotency_interrupted'
  | 'idempotency_key_reused'
  /** The stored answer held a secret that is none any more, and was forgotten with it. */
  | 'secret_withdrawn'
  | 'rate_limited'
  | 'too_many_sandboxes'
  | 'queue_full'
  /** The agent's own server is not there, or does not speak HTTP; and: it does not answer. */
  | 'bad_gateway'
  | 'gateway_timeout'
  | 'internal'
  | 'unavailable';

/** One field that is wrong: `path` is a dotted field name, `message` says what to do about it. */
export interface ErrorDetail {
  path: string;
  message: string;
}

export interface DomainErrorOptions {
  details?: ErrorDetail[];
  retryAfterSeconds?: number;
  /** For logs only; it never reaches a caller. */
  cause?: unknown;
}

/** An error whose text is safe to show to the caller. Anything else that is thrown becomes `internal`. */
export class DomainError extends Error {
  readonly code: ErrorCode;
  readonly details: ErrorDetail[] | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, message: string, options: DomainErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'DomainError';
    this.code = code;
    this.details = options.details;
    this.retryAfterSeconds = options.retryAfterSeconds;
  }
}

/** The one answer for what is missing and for what is not the caller's to see: the two cannot be told apart. */
export function notFound(): DomainError {
  return new DomainError('not_found', 'Not found.');
}

export function invalid(path: string, message: string): DomainError {
  return new DomainError('invalid_request', `${path}: ${message}`, { details: [{ path, message }] });
}

/** Why a run ended without an answer: a closed list, shown as `error.code` of the run (API contract, section 5). */
export type RunErrorCode =
  | 'budget_exceeded'
  | 'model_error'
  | 'harness_exit'
  | 'harness_error'
  | 'sandbox_unavailable'
  | 'sandbox_oom'
  | 'sandbox_disk_full'
  | 'deployment_missing'
  | 'timeout'
  /** The agent does not do what it was asked to; the text is what it said. */
  | 'refused'
  | 'lost';

export interface RunError {
  error: string;
  code: RunErrorCode;
}
