import type { ErrorCode } from '../domain/errors.ts';
import { statusOf } from './http/status.ts';
import type { Route } from './http/route.ts';
import { takesBody } from './http/route.ts';

/** One example text for each code, as the service says it. The compiler holds the table complete. */
const texts: Record<ErrorCode, string> = {
  invalid_request: 'name: must have at most 100 characters',
  invalid_json: 'The body is not valid JSON.',
  invalid_cursor: 'The cursor is not one of this list; begin again without it.',
  key_missing: 'Send an API key as "Authorization: Bearer <API_KEY>".',
  key_invalid: 'The API key is not valid.',
  signature_invalid: 'The request could not be verified.',
  budget_exceeded:
    "The agent's budget of 5.000000 dollars for this day is used up. Raise it, or wait until it begins anew at 2026-11-29T00:00:00.000Z.",
  scope_insufficient: 'This key has the scope "use"; the operation needs a key with the scope "edit".',
  binding_insufficient: 'This key is bound to one agent; the operation needs an org-bound key.',
  not_found: 'Not found.',
  method_not_allowed: 'This path takes GET, HEAD only.',
  precondition_failed:
    'It is not, or no longer, what If-Match or If-None-Match says; look at it again, then decide.',
  body_too_large: 'The body is larger than 1048576 bytes.',
  unsupported_media_type: 'Send the body as JSON in UTF-8, with the header "Content-Type: application/json".',
  conflict: 'The resource is not in a state that allows this.',
  conversation_busy: 'A run of this conversation is under way.',
  idempotency_in_progress: 'A request with this Idempotency-Key is still being worked on; try again shortly.',
  idempotency_interrupted:
    'The work of this Idempotency-Key was broken off: it may have begun, and is not done again. Look what became of it before you send it with another key.',
  idempotency_key_reused: 'This Idempotency-Key was used for another request; use a new one.',
  secret_withdrawn:
    'The first answer to this Idempotency-Key held a secret that has been revoked, replaced or deleted since; it is no longer kept. Use a new key to make another.',
  rate_limited: 'This key may make 600 requests in 60 seconds; try again in 1 s.',
  too_many_sandboxes: 'Too many agents have unfinished work; try again later.',
  queue_full: 'Too many messages wait in this conversation; try again later.',
  bad_gateway: "The agent's web server could not be reached. Nothing listens on port 8080.",
  gateway_timeout: "The agent's web server gave no answer within 120 s.",
  internal:
    'Something went wrong on our side. If it happens again, report the request id 0197c2b9-2c10-7d31-9a44-5b6c7d8e9f01.',
  unavailable: 'The service cannot reach its database just now; try again.',
};

const names: Record<number, [name: string, description: string]> = {
  400: ['BadRequest', 'The request is not right; `details` names the fields.'],
  401: ['Unauthorized', 'The API key is missing, or is not an active key.'],
  402: ['PaymentRequired', 'A budget is used up.'],
  403: ['Forbidden', 'The key may not do this; the text says what is needed. Nothing took effect.'],
  404: ['NotFound', 'It does not exist, or is not yours to see: the two cannot be told apart.'],
  405: ['MethodNotAllowed', 'The path takes other methods; see `Allow`.'],
  409: ['Conflict', 'The state of things does not allow this now.'],
  410: ['Gone', 'The stored answer held a secret that has been revoked, replaced or deleted since.'],
  412: ['PreconditionFailed', 'What `If-Match` or `If-None-Match` asks for is not so; nothing took effect.'],
  413: ['ContentTooLarge', 'The body is too large.'],
  415: ['UnsupportedMediaType', 'The body is not declared as JSON.'],
  422: ['UnprocessableContent', 'The Idempotency-Key belongs to another request.'],
  429: ['TooManyRequests', 'Too much at once; try again after `Retry-After` seconds.'],
  500: ['InternalError', 'Our mistake; the text has the request id.'],
  502: ['BadGateway', "The agent's own web server is not there."],
  503: ['Unavailable', 'The service cannot answer just now; try again.'],
  504: ['GatewayTimeout', "The agent's own web server does not answer."],
};

const errorCodes = Object.keys(texts) as ErrorCode[];

export const errorSchema = {
  type: 'object',
  description: 'Every error has this shape.',
  properties: {
    error: { type: 'string', description: 'Words for a person.' },
    code: {
      type: 'string',
      description: `One word for a program: ${errorCodes.map((code) => `\`${code}\``).join(', ')}.`,
    },
    details: {
      type: 'array',
      description: 'With `invalid_request`: what is wrong with which field.',
      items: {
        type: 'object',
        properties: {
          path: { type: 'string', description: 'The field, dotted.' },
          message: { type: 'string', description: 'What to do about it.' },
        },
        required: ['path', 'message'],
      },
    },
  },
  required: ['error', 'code'],
};

/** `components.responses`: one for each status, with an example for each of its codes. */
export function errorResponses(): Record<string, unknown> {
  const responses: Record<string, unknown> = {};
  for (const [status, [name, description]] of Object.entries(names)) {
    const codes = errorCodes.filter((code) => statusOf[code] === Number(status));
    const examples = codes.map((code) => [code, { value: exampleOf(code) }]);
    responses[name] = {
      description,
      headers: headersOf(Number(status)),
      content: {
        'application/json': {
          schema: { $ref: '#/components/schemas/Error' },
          examples: Object.fromEntries(examples),
        },
      },
    };
  }
  return responses;
}

function exampleOf(code: ErrorCode) {
  if (code !== 'invalid_request') return { error: texts[code], code };
  return {
    error: texts[code],
    code,
    details: [{ path: 'name', message: 'must have at most 100 characters' }],
  };
}

function headersOf(status: number): Record<string, unknown> {
  const headers: Record<string, unknown> = { 'X-Request-Id': { $ref: '#/components/headers/RequestId' } };
  if (status === 401) headers['WWW-Authenticate'] = { schema: { type: 'string' }, description: '`Bearer …`' };
  if (status === 429 || status === 503) headers['Retry-After'] = { $ref: '#/components/headers/RetryAfter' };
  return headers;
}

/** The error statuses that a route can give, each with a reference to its response. */
export function errorsOf(route: Route): Record<string, { $ref: string }> {
  const codes: ErrorCode[] = [
    // Every call refuses query parameters that it does not know.
    'invalid_request',
    'key_missing',
    'scope_insufficient',
    'rate_limited',
    'internal',
    'unavailable',
    ...(route.errors ?? []),
  ];
  if (route.path.includes('{')) codes.push('not_found');
  if (takesBody(route)) codes.push('body_too_large', 'unsupported_media_type');
  if (route.rawBody) codes.push('body_too_large', 'unsupported_media_type');
  if (route.method === 'post')
    codes.push('idempotency_in_progress', 'idempotency_interrupted', 'idempotency_key_reused');
  if (route.showsSecret) codes.push('secret_withdrawn');
  const statuses = [...new Set(codes.map((code) => statusOf[code]))].sort((a, b) => a - b);
  return Object.fromEntries(
    statuses.map((status) => [status, { $ref: `#/components/responses/${names[status]![0]}` }]),
  );
}
