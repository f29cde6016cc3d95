import type { DomainError, RunError } from '../../domain/errors.ts';
import type { Head } from '../http/answer.ts';
import { jsonResponse } from '../http/answer.ts';
import { statusOf } from '../http/status.ts';
import type { Refusal } from '../hosts/host-edge.ts';

/** OpenAI's error object, which stands in a field `error`. */
export interface OpenaiError {
  message: string;
  type: string;
  param: string | null;
  code: string | null;
}

export function errorOf(error: DomainError): OpenaiError {
  const param = error.details?.[0]?.path ?? null;
  const isModel = error.code === 'not_found' && param === 'model';
  return {
    message: error.message,
    type: typeOf(statusOf[error.code]),
    param,
    code: isModel ? 'model_not_found' : outerCode(error.code),
  };
}

/** For the host edge: the same statuses as everywhere, in OpenAI's form. */
export function refuseAsOpenai(error: DomainError): Refusal {
  return { body: { error: errorOf(error) } };
}

/** Of a run that has ended without an answer. */
export function errorOfRun(error: RunError | null): OpenaiError {
  if (error === null) {
    return {
      message: 'The run was cancelled before it had an answer.',
      type: 'server_error',
      param: null,
      code: 'cancelled',
    };
  }
  return { message: error.error, type: typeOf(runStatus(error)), param: null, code: error.code };
}

/** The answer for such a run. OpenAI's own clients would send the message again for many statuses; this stops them. */
export function runRefused(error: RunError | null, head: Head): Response {
  head['x-should-retry'] = 'false';
  return errorAnswer(error === null ? 409 : runStatus(error), errorOfRun(error), head);
}

export function errorAnswer(status: number, error: OpenaiError, head: Head): Response {
  return jsonResponse(status, JSON.stringify({ error }), head);
}

function runStatus(error: RunError): number {
  if (error.code === 'budget_exceeded') return 402;
  if (error.code === 'timeout') return 504;
  return error.code === 'model_error' ? 502 : 500;
}

function typeOf(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 402) return 'insufficient_quota';
  if (status === 403) return 'permission_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

function outerCode(code: string): string {
  if (code === 'key_missing' || code === 'key_invalid') return 'invalid_api_key';
  return code === 'rate_limited' ? 'rate_limit_exceeded' : code;
}
