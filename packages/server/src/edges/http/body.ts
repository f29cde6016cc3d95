import type { IncomingMessage } from 'node:http';
import type { Context } from 'hono';
import { DomainError } from '../../domain/errors.ts';
import type { BodyHold } from '../../domain/flight.ts';
import { shapeOf, tooManyValues } from '../../domain/json-shape.ts';
import { GrowingBytes } from '../../domain/growing-bytes.ts';
import { limits } from '../../domain/limits.ts';
import { bySize, smallBytes, type BodySender, type Sliced } from '../../domain/slices.ts';
import { abortWhenGone } from './gone.ts';
import type { Env } from './request.ts';
import { header } from './request.ts';
import { badJsonValue, textOf } from './text.ts';

/** A client that sends its body slower than this is let go, so that it cannot hold a request open for ever. */
const bodyTimeoutMs = 30_000;

export interface JsonBodyOptions {
  maxBytes?: number;
  /** Besides `application/json`, e.g. `application/a2a+json`. */
  mediaTypes?: readonly string[];
  /** Sees the body as soon as it is JSON, before it is looked into: an error can then name the request. */
  onRead?: (body: unknown) => void;
}

/**
 * The JSON body of a request (RFC 8259). No body at all reads as `{}`, so that what is missing is told by name. `sender` is
 * who waits in turns with others when it is large, until its connection closes; `hold` counts its bytes, and its values before they are parsed. Throws `unsupported_media_type`, `body_too_large` (without reading the rest), `invalid_json`,
 * `invalid_request`, and what `hold` throws.
 */
export async function readJsonBody(
  c: Context<Env>,
  sender: BodySender,
  hold: BodyHold,
  { maxBytes = limits.bodyBytes, mediaTypes = [], onRead = () => undefined }: JsonBodyOptions = {},
): Promise<unknown> {
  if (!hasBody(c)) return {};
  requireJson(header(c, 'content-type'), header(c, 'content-encoding'), mediaTypes);
  const bytes = await readBody(c, maxBytes, hold);
  if (bytes.length === 0) return {};
  const waits = bytes.length > smallBytes;
  const gone = waits ? abortWhenGone(c.env?.outgoing, new AbortController()) : undefined;
  return bySize({ ...sender, gone }, bytes.length, parse(bytes, hold, onRead));
}

/** The whole body. Throws `body_too_large`, without reading the rest, `invalid_request` when it does not come, and what `hold` throws. */
export async function readBody(c: Context<Env>, maxBytes: number, hold: BodyHold): Promise<Buffer> {
  if (!hasBody(c)) return Buffer.alloc(0);
  const declared = Number(header(c, 'content-length') ?? 0);
  if (declared > maxBytes) throw tooLarge(maxBytes);
  const incoming = c.env?.incoming;
  return incoming ? readIncoming(incoming, maxBytes, hold) : readWeb(c.req.raw, maxBytes, hold);
}

function hasBody(c: Context<Env>): boolean {
  if (!c.env?.incoming) return c.req.raw.body !== null;
  const length = header(c, 'content-length');
  if (length !== undefined) return length !== '0';
  return header(c, 'transfer-encoding') !== undefined;
}

/** Throws `unsupported_media_type` for what is not JSON in UTF-8, or is compressed. */
export function requireJson(
  contentType: string | undefined,
  contentEncoding: string | undefined,
  mediaTypes: readonly string[],
): void {
  if (contentEncoding !== undefined && contentEncoding.toLowerCase() !== 'identity') {
    throw new DomainError('unsupported_media_type', 'Send the body without a Content-Encoding.');
  }
  const match = /^([^\s;]+)\s*(;\s*charset="?utf-8"?\s*)?$/i.exec(contentType ?? '');
  const mediaType = match?.[1]?.toLowerCase();
  if (mediaType !== undefined && (mediaType === 'application/json' || mediaTypes.includes(mediaType))) return;
  throw new DomainError(
    'unsupported_media_type',
    'Send the body as JSON in UTF-8, with the header "Content-Type: application/json".',
  );
}

function* parse(bytes: Buffer, hold: BodyHold, onRead: (body: unknown) => void): Sliced<unknown> {
  const text = yield* textOf(bytes);
  if (text === null) throw new DomainError('invalid_json', 'The body is not valid UTF-8.');
  const shape = yield* shapeOf(text);
  if (shape.hasTooMany) throw new DomainError('invalid_request', tooManyValues('The body'));
  hold.addValues(shape.values);
  yield;
  const value = parseText(text);
  onRead(value);
  if (shape.isTooDeep)
    throw new DomainError('invalid_request', `The body is nested deeper than ${limits.jsonDepth} levels.`);
  yield;
  const bad = yield* badJsonValue(text, value);
  if (bad === null) return value;
  throw new DomainError('invalid_request', `${bad.path}: ${bad.message}`, { details: [bad] });
}

function parseText(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // The parser's own message quotes the body, which may hold a secret.
    throw new DomainError('invalid_json', 'The body is not valid JSON.');
  }
}

function tooLarge(maxBytes: number): DomainError {
  return new DomainError('body_too_large', `The body is larger than ${maxBytes} bytes.`);
}

const cutOff = () => new DomainError('invalid_request', 'The body ended before it was complete.');

/** Straight from the socket's events: a web stream in between costs more than the parsing. */
function readIncoming(incoming: IncomingMessage, maxBytes: number, hold: BodyHold): Promise<Buffer> {
  // Whoever has gone before we came to read is told of by no further event.
  if (incoming.destroyed) return Promise.reject(cutOff());
  return new Promise((resolve, reject) => {
    const held = new GrowingBytes(maxBytes);
    const settle = (finish: () => void) => {
      clearTimeout(timer);
      incoming.off('data', onData).off('end', onEnd).off('close', onClose).off('error', onClose);
      finish();
    };
    const onData = (chunk: Buffer) => {
      try {
        if (held.length + chunk.length > maxBytes) throw tooLarge(maxBytes);
        hold.add(chunk.length);
        held.add(chunk);
      } catch (error) {
        held.clear();
        settle(() => reject(error as Error));
      }
    };
    const onEnd = () => settle(() => resolve(held.whole()));
    const onClose = () => settle(() => reject(cutOff()));
    const timer = setTimeout(
      () => settle(() => reject(new DomainError('invalid_request', 'The body did not arrive in time.'))),
      bodyTimeoutMs,
    );
    incoming.on('data', onData).on('end', onEnd).on('close', onClose).on('error', onClose);
  });
}

async function readWeb(request: Request, maxBytes: number, hold: BodyHold): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of request.body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > maxBytes) throw tooLarge(maxBytes);
    hold.add(chunk.byteLength);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
