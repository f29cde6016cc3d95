import { jsonText, type Reader } from '../../domain/large-json.ts';

/** What a handler gives back; `toResponse` makes bytes of it. A body of `undefined` is no body at all (204). */
export interface Answer {
  status: number;
  body?: unknown;
  headers?: Record<string, string>;
  /** Whose secret stands in the body (id of a key, an endpoint or a channel): a stored answer is forgotten with it. */
  secretOf?: string;
}

/** Answer headers under construction, a plain object: the Node adapter writes those without a Headers object. */
export type Head = Record<string, string>;

/**
 * Every answer of the API may hold what only this caller may see, so nothing in between may keep it, and no browser
 * may take it for anything but what it says.
 */
export function newHead(requestId: string): Head {
  return {
    'X-Request-Id': requestId,
    'Cache-Control': 'no-store',
    'X-Content-Type-Options': 'nosniff',
  };
}

/**
 * What does not change is made into bytes once: a text is copied for each connection, and stays with it until its client has read
 * it; bytes are shared by all.
 */
export type FixedBody = Buffer<ArrayBuffer>;
export const fixedBody = (text: string): FixedBody => Buffer.from(text);

export function toResponse(answer: Answer, head: Head, reader: Reader): Response | Promise<Response> {
  if (answer.headers) Object.assign(head, answer.headers);
  if (answer.body === undefined) return new Response(null, { status: answer.status, headers: head });
  return textResponse(answer.status, jsonText(reader, answer.body), head);
}

/** What `jsonText` gave, as an answer. */
export const textResponse = (
  status: number,
  json: string | Promise<string>,
  head: Head,
): Response | Promise<Response> =>
  json instanceof Promise
    ? json.then((text) => jsonResponse(status, text, head))
    : jsonResponse(status, json, head);

/** `json` is text that is JSON already, or its bytes. */
export function jsonResponse(status: number, json: string | FixedBody, head: Head): Response {
  head['Content-Type'] = 'application/json';
  return new Response(json, { status, headers: head });
}
