import {
  A2AError,
  A2A_ERROR_CODE,
  ContentTypeNotSupportedError,
  ExtensionSupportRequiredError,
  JsonRpcTransportError,
  PushNotificationNotSupportedError,
  RequestMalformedError,
  restStatusFor,
  TaskNotCancelableError,
  TaskNotFoundError,
  toJsonRpcError,
  toRestErrorBody,
  UnsupportedOperationError,
  VersionNotSupportedError,
} from '@a2a-js/sdk/errors';
import type { ErrorCode } from '../../domain/errors.ts';
import { DomainError } from '../../domain/errors.ts';
import { presentable } from '../http/errors.ts';
import { statusOf } from '../http/status.ts';

export {
  A2AError,
  ContentTypeNotSupportedError,
  ExtensionSupportRequiredError,
  PushNotificationNotSupportedError,
  RequestMalformedError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
  VersionNotSupportedError,
};

/** One error in the words of every binding (A2A 1.0.1, sections 5.4, 9.5 and 11.6). */
export interface Failure {
  rpcCode: number;
  httpStatus: number;
  /** The name of a google.rpc.Code. */
  statusName: string;
  message: string;
  /** google.rpc details, the first an ErrorInfo. */
  details: Record<string, unknown>[];
  retryAfterSeconds: number | undefined;
  /** For the log; absent when the caller was told all. */
  cause?: unknown;
}

const ERROR_INFO = 'type.googleapis.com/google.rpc.ErrorInfo';
const BAD_REQUEST = 'type.googleapis.com/google.rpc.BadRequest';
/** Of errors that A2A has no name for. */
const OWN_DOMAIN = 'berth.dev';
/** JSON-RPC 2.0, section 5.1: -32000 to -32099 are the server's; A2A has taken those from -32001 on. */
const SERVER_ERROR = -32000;

const statusNames: Partial<Record<ErrorCode, string>> = {
  key_missing: 'UNAUTHENTICATED',
  key_invalid: 'UNAUTHENTICATED',
  scope_insufficient: 'PERMISSION_DENIED',
  binding_insufficient: 'PERMISSION_DENIED',
  not_found: 'NOT_FOUND',
  method_not_allowed: 'UNIMPLEMENTED',
  conflict: 'ABORTED',
  conversation_busy: 'ABORTED',
  idempotency_in_progress: 'ABORTED',
  budget_exceeded: 'RESOURCE_EXHAUSTED',
  rate_limited: 'RESOURCE_EXHAUSTED',
  too_many_sandboxes: 'RESOURCE_EXHAUSTED',
  queue_full: 'RESOURCE_EXHAUSTED',
  internal: 'INTERNAL',
  unavailable: 'UNAVAILABLE',
};

const rpcCodes: Partial<Record<ErrorCode, number>> = {
  invalid_json: A2A_ERROR_CODE.PARSE_ERROR,
  body_too_large: A2A_ERROR_CODE.INVALID_REQUEST,
  invalid_request: A2A_ERROR_CODE.INVALID_PARAMS,
  invalid_cursor: A2A_ERROR_CODE.INVALID_PARAMS,
  unsupported_media_type: A2A_ERROR_CODE.CONTENT_TYPE_NOT_SUPPORTED,
  method_not_allowed: A2A_ERROR_CODE.METHOD_NOT_FOUND,
  internal: A2A_ERROR_CODE.INTERNAL_ERROR,
};

/** What a caller may be told of `error`: nothing of ours but a request id. */
export function failureOf(error: unknown, requestId: string): Failure {
  if (error instanceof JsonRpcTransportError) {
    return {
      rpcCode: error.envelopeCode,
      httpStatus: 400,
      statusName: 'INVALID_ARGUMENT',
      message: error.message,
      details: [],
      retryAfterSeconds: undefined,
    };
  }
  if (error instanceof A2AError) {
    const { code, message, data } = toJsonRpcError(error);
    const httpStatus = restStatusFor(error);
    return {
      rpcCode: code,
      httpStatus,
      statusName: toRestErrorBody(error, httpStatus).error.status,
      message,
      details: (data ?? []) as unknown as Record<string, unknown>[],
      retryAfterSeconds: undefined,
    };
  }
  return domainFailure(presentable(error, requestId));
}

function domainFailure(error: DomainError): Failure {
  const details: Record<string, unknown>[] = [
    { '@type': ERROR_INFO, reason: error.code.toUpperCase(), domain: OWN_DOMAIN },
  ];
  if (error.details) {
    const fieldViolations = error.details.map(({ path, message }) => ({ field: path, description: message }));
    details.push({ '@type': BAD_REQUEST, fieldViolations });
  }
  return {
    rpcCode: rpcCodes[error.code] ?? SERVER_ERROR,
    httpStatus: statusOf[error.code],
    statusName: statusNames[error.code] ?? 'INVALID_ARGUMENT',
    message: error.message,
    details,
    retryAfterSeconds: error.retryAfterSeconds,
    ...(error.code === 'internal' && { cause: error.cause ?? error }),
  };
}

export function rpcErrorOf(failure: Failure): { code: number; message: string; data?: unknown } {
  const { rpcCode, message, details } = failure;
  return { code: rpcCode, message, ...(details.length > 0 && { data: details }) };
}

export function restErrorOf(failure: Failure): unknown {
  const { httpStatus, statusName, message, details } = failure;
  return { error: { code: httpStatus, status: statusName, message, details } };
}

/** For the SDK's 0.3 layer, which tells an error by its JSON-RPC code and everything else word for word. */
export function legacyError(error: unknown, requestId: string): Error {
  if (error instanceof A2AError) return error;
  const { code, message } = rpcErrorOf(failureOf(error, requestId));
  return new JsonRpcTransportError({ jsonrpc: '2.0', id: null, error: { code, message } });
}
