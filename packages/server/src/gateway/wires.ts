/** Every protocol that passes through; a provider's preferred one is a `ModelWire` of the port. */
export type Wire = 'anthropic' | 'openai-chat' | 'openai-responses' | 'gemini';

/** What a request asks for. `generate` is answered by a model and metered; `count` and `list` cost nothing. */
export type Purpose = 'generate' | 'embed' | 'count' | 'list';

export type WireErrorCode =
  | 'bad_request'
  | 'token_invalid'
  | 'budget_exceeded'
  | 'forbidden'
  | 'key_missing'
  | 'not_found'
  | 'too_large'
  | 'too_busy'
  | 'unsupported_encoding'
  | 'provider_refused_key'
  | 'provider_unreachable'
  | 'provider_timeout'
  | 'internal';

interface ErrorKind {
  status: number;
  /** Error types of the three vendors, so that client libraries raise their usual exceptions. */
  anthropic: string;
  openai: string;
  gemini: string;
}

const kinds: Record<WireErrorCode, ErrorKind> = {
  bad_request: kind(400, 'invalid_request_error', 'invalid_request_error', 'INVALID_ARGUMENT'),
  token_invalid: kind(401, 'authentication_error', 'authentication_error', 'UNAUTHENTICATED'),
  key_missing: kind(401, 'authentication_error', 'authentication_error', 'UNAUTHENTICATED'),
  provider_refused_key: kind(401, 'authentication_error', 'authentication_error', 'UNAUTHENTICATED'),
  budget_exceeded: kind(402, 'billing_error', 'insufficient_quota', 'RESOURCE_EXHAUSTED'),
  forbidden: kind(403, 'permission_error', 'permission_error', 'PERMISSION_DENIED'),
  not_found: kind(404, 'not_found_error', 'invalid_request_error', 'NOT_FOUND'),
  too_large: kind(413, 'request_too_large', 'invalid_request_error', 'INVALID_ARGUMENT'),
  unsupported_encoding: kind(415, 'invalid_request_error', 'invalid_request_error', 'INVALID_ARGUMENT'),
  too_busy: kind(429, 'rate_limit_error', 'rate_limit_error', 'RESOURCE_EXHAUSTED'),
  internal: kind(500, 'api_error', 'server_error', 'INTERNAL'),
  provider_unreachable: kind(502, 'api_error', 'server_error', 'UNAVAILABLE'),
  provider_timeout: kind(504, 'timeout_error', 'server_error', 'DEADLINE_EXCEEDED'),
};

function kind(status: number, anthropic: string, openai: string, gemini: string): ErrorKind {
  return { status, anthropic, openai, gemini };
}

/** A refusal whose text is safe to show inside the sandbox. */
export class WireError extends Error {
  readonly code: WireErrorCode;
  /** When it is worth another try, where that is known. */
  readonly retryAfterSeconds: number | null;

  constructor(code: WireErrorCode, message: string, retryAfterSeconds: number | null = null) {
    super(message);
    this.name = 'WireError';
    this.code = code;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The status and JSON body of an error, in the shape that the wire's own clients understand. */
export function wireError(
  wire: Wire,
  code: WireErrorCode,
  message: string,
): { status: number; body: string } {
  const { status, anthropic, openai, gemini } = kinds[code];
  if (wire === 'anthropic') {
    return { status, body: JSON.stringify({ type: 'error', error: { type: anthropic, code, message } }) };
  }
  if (wire === 'gemini') {
    const details = [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: code, domain: 'berth' }];
    return { status, body: JSON.stringify({ error: { code: status, message, status: gemini, details } }) };
  }
  return { status, body: JSON.stringify({ error: { message, type: openai, code, param: null } }) };
}
