import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { isRecord } from './guard.ts';

const A2A_TYPE = 'application/a2a+json';

/** The JSON object of a request; `{}` when it has no body. */
export async function readBody(call: HostCall): Promise<Record<string, unknown>> {
  const body = await call.json({ maxBytes: limits.a2aBodyBytes, mediaTypes: [A2A_TYPE] });
  // Some clients send `null` where there is nothing to say.
  if (body === null) return {};
  if (!isRecord(body)) throw new DomainError('invalid_request', 'The body must be a JSON object.');
  return body;
}
