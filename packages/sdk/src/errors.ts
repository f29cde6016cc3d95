/** An answer of the service that is an error, or a connection that could not be made (`status` 0). */
export class BerthError extends Error {
  /** HTTP status; 0 when there was no answer. */
  readonly status: number;
  /** Machine-readable code (API contract, section 3); absent on some errors. */
  readonly code: string | undefined;
  readonly details: { path: string; message: string }[];
  readonly requestId: string | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(
    message: string,
    fields: {
      status: number;
      code?: string | undefined;
      details?: { path: string; message: string }[] | undefined;
      requestId?: string | undefined;
      retryAfterSeconds?: number | undefined;
      cause?: unknown;
    },
  ) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = 'BerthError';
    this.status = fields.status;
    this.code = fields.code;
    this.details = fields.details ?? [];
    this.requestId = fields.requestId;
    this.retryAfterSeconds = fields.retryAfterSeconds;
  }
}

/** Whether a service that restarts may be the reason, so that it is worth trying again. */
export function isAway(error: unknown): error is BerthError {
  return error instanceof BerthError && (error.status === 0 || error.status >= 502);
}

export async function errorOf(response: Response): Promise<BerthError> {
  const text = await response.text().catch(() => '');
  let body: { error?: unknown; code?: unknown; details?: unknown } = {};
  try {
    body = JSON.parse(text) as typeof body;
  } catch {
    // A proxy in between may answer with something else than our JSON; its status still tells.
  }
  const retryAfter = Number(response.headers.get('retry-after') ?? Number.NaN);
  return new BerthError(typeof body.error === 'string' ? body.error : `HTTP ${response.status}`, {
    status: response.status,
    code: typeof body.code === 'string' ? body.code : undefined,
    details: Array.isArray(body.details) ? (body.details as { path: string; message: string }[]) : undefined,
    requestId: response.headers.get('x-request-id') ?? undefined,
    retryAfterSeconds: Number.isFinite(retryAfter) ? retryAfter : undefined,
  });
}
