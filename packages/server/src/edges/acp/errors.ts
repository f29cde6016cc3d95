import { RequestError } from '@agentclientprotocol/sdk';
import type { RunError } from '../../domain/errors.ts';
import { DomainError } from '../../domain/errors.ts';
import type { ErrorCode } from '../../domain/errors.ts';
import { presentable } from '../http/errors.ts';

/** Codes of JSON-RPC 2.0, section 5.1, and of the Agent Client Protocol (`ErrorCode`); the rest is ours, in -32000 to -32099. */
const codeOf: Record<ErrorCode, number> = {
  invalid_request: -32602,
  invalid_json: -32700,
  invalid_cursor: -32602,
  key_missing: -32000,
  key_invalid: -32000,
  signature_invalid: -32000,
  not_found: -32002,
  method_not_allowed: -32600,
  unsupported_media_type: -32600,
  body_too_large: -32600,
  precondition_failed: -32600,
  budget_exceeded: -32010,
  scope_insufficient: -32011,
  binding_insufficient: -32011,
  conflict: -32012,
  conversation_busy: -32012,
  idempotency_in_progress: -32012,
  idempotency_interrupted: -32012,
  idempotency_key_reused: -32012,
  secret_withdrawn: -32012,
  rate_limited: -32013,
  too_many_sandboxes: -32013,
  queue_full: -32013,
  internal: -32603,
  unavailable: -32603,
  bad_gateway: -32603,
  gateway_timeout: -32603,
};

/** An error as a response has it; `data` has our own code and what there is of details. */
export function requestError(error: unknown, requestId: string): RequestError {
  if (error instanceof RequestError) return error;
  const { code, message, details, retryAfterSeconds } = presentable(error, requestId);
  const data = {
    code,
    ...(details && { details }),
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
  };
  return new RequestError(codeOf[code], message, data);
}

/** Why a prompt has no answer: its run failed. */
export function runFailed(error: RunError): RequestError {
  const code = error.code === 'budget_exceeded' ? codeOf.budget_exceeded : codeOf.internal;
  return new RequestError(code, error.error, { code: error.code });
}

/** For a session that this connection has not opened, or that is not the caller's to see. */
export function noSession(sessionId: string): RequestError {
  return RequestError.sessionNotFound(sessionId);
}

export function invalidParams(path: string, message: string): RequestError {
  return requestError(
    new DomainError('invalid_request', `${path}: ${message}`, { details: [{ path, message }] }),
    '',
  );
}
