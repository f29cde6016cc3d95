import { jsonResponse } from '../http/answer.ts';
import type { PublicCall } from './host-edge.ts';

/** The value as JSON. A text leaves with its head in one write; a `Response.json` is a stream to the Node adapter. */
export function jsonAnswer(call: Pick<PublicCall, 'head'>, value: unknown, status = 200): Response {
  return jsonResponse(status, JSON.stringify(value), call.head);
}
