import { isDatabaseAway, isUnstorableText, isWithdrawn } from '../../domain/database-away.ts';
import { isDiskFull } from '../../domain/disk-full.ts';
import type { ErrorDetail } from '../../domain/errors.ts';
import { DomainError } from '../../domain/errors.ts';
import { statusOf } from './status.ts';
import type { Head } from './answer.ts';

export interface ErrorBody {
  error: string;
  code: string;
  details?: ErrorDetail[];
}

/**
 * What a caller may be told of `error`. Only a DomainError speaks for itself; everything else is ours to read in the
 * log, and the caller gets the request id to name it by.
 */
export function presentable(error: unknown, requestId: string): DomainError {
  if (error instanceof DomainError) return error;
  if (isDiskFull(error)) {
    return new DomainError('unavailable', 'The disk of the service is full; try again when there is room.', {
      retryAfterSeconds: 10,
      cause: error,
    });
  }
  if (isDatabaseAway(error)) {
    return new DomainError('unavailable', 'The service cannot reach its database just now; try again.', {
      retryAfterSeconds: 1,
      cause: error,
    });
  }
  if (isWithdrawn(error)) {
    return new DomainError(
      'unavailable',
      'Others changed the same at this moment, so nothing was done; try again.',
      {
        retryAfterSeconds: 1,
        cause: error,
      },
    );
  }
  // Names in paths and queries are looked up as they are; what fields hold is checked long before.
  if (isUnstorableText(error))
    return new DomainError(
      'invalid_request',
      'A text of the request holds a character that no text may (U+0000).',
    );
  return new DomainError(
    'internal',
    `Something went wrong on our side. If it happens again, report the request id ${requestId}.`,
    { cause: error },
  );
}

export function errorBody(error: DomainError): ErrorBody {
  const body: ErrorBody = { error: error.message, code: error.code };
  if (error.details) body.details = error.details;
  return body;
}

export function errorResponse(error: DomainError, head: Head): Response {
  return errorResponseAs(error, head, { body: errorBody(error) });
}

/** The same with a body of another form, for a protocol that has its own. */
export function errorResponseAs(
  error: DomainError,
  head: Head,
  form: { status?: number; contentType?: string; body: unknown },
): Response {
  const status = form.status ?? statusOf[error.code];
  if (status === 401) head['WWW-Authenticate'] = challenge(error.code);
  if (error.retryAfterSeconds !== undefined) head['Retry-After'] = String(error.retryAfterSeconds);
  head['Content-Type'] = form.contentType ?? 'application/json';
  return new Response(JSON.stringify(form.body), { status, headers: head });
}

/** RFC 6750, section 3: a request without any credentials is told no error code. */
function challenge(code: string): string {
  return code === 'key_missing' ? 'Bearer realm="berth"' : 'Bearer realm="berth", error="invalid_token"';
}
