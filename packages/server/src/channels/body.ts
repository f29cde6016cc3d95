import { cleanText, cleanValue } from '../domain/clean-text.ts';
import { DomainError, invalid } from '../domain/errors.ts';
import { shapeOf, tooManyValues } from '../domain/json-shape.ts';
import type { InboundRequest } from '../domain/ports/channel.ts';
import { atOnce } from '../domain/slices.ts';

export type Json = Record<string, unknown>;

/** `application/json; charset=latin1` → `['application/json', 'latin1']`. */
export function mediaType(request: InboundRequest): {
  type: string;
  charset: string | null;
  boundary: string | null;
} {
  const header = request.headers.get('content-type') ?? '';
  const [type = '', ...parameters] = header.split(';');
  const read = (name: string) => {
    const found = parameters
      .map((text) => text.trim())
      .find((text) => text.toLowerCase().startsWith(`${name}=`));
    return found ? found.slice(name.length + 1).replace(/^"(.*)"$/, '$1') : null;
  };
  return { type: type.trim().toLowerCase(), charset: read('charset'), boundary: read('boundary') };
}

function wrongType(type: string, wanted: string): DomainError {
  return new DomainError(
    'unsupported_media_type',
    `The body has the content type "${cleanText(type.slice(0, 100))}"; this channel takes ${wanted}.`,
  );
}

/** Text in the charset that the sender names (WHATWG labels); what does not fit becomes U+FFFD. */
export function decode(bytes: Buffer, charset: string | null): string {
  if (charset === null || /^utf-?8$/i.test(charset))
    return cleanText(bytes.toString('utf8').replace(/^\ufeff/, ''));
  try {
    return cleanText(new TextDecoder(charset).decode(bytes));
  } catch {
    throw new DomainError(
      'unsupported_media_type',
      `The charset "${charset.slice(0, 40)}" is not known; send UTF-8.`,
    );
  }
}

export function isJsonType(type: string): boolean {
  return type === 'application/json' || (type.startsWith('application/') && type.endsWith('+json'));
}

/** The body as a JSON object. `also`: further content types under which the sender posts JSON. */
export function readJsonBody(request: InboundRequest, also: string[] = []): Json {
  const { type, charset } = mediaType(request);
  if (!isJsonType(type) && !also.includes(type)) throw wrongType(type, 'application/json');
  return parseJson(decode(request.body, charset));
}

/** `field`: where in the body it stands, when it is not the whole one. */
export function parseJson(text: string, field: string | null = null): Json {
  const what = field === null ? 'The body' : `The field "${field}"`;
  if (atOnce(shapeOf(text)).hasTooMany) throw new DomainError('invalid_request', tooManyValues(what));
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new DomainError('invalid_json', `${what} is not valid JSON.`);
  }
  if (!isObject(value)) throw invalid(field ?? 'body', 'must be a JSON object.');
  return cleanValue(value) as Json;
}

/** Fields of a urlencoded body; the bytes behind the percent signs are in the charset of the request. */
export function readFormBody(request: InboundRequest): URLSearchParams {
  const { type, charset } = mediaType(request);
  if (type !== 'application/x-www-form-urlencoded')
    throw wrongType(type, 'application/x-www-form-urlencoded');
  return parseForm(decode(request.body, charset));
}

/** Far more than any sender has. */
const maxFields = 1_000;

/** Fields as they stand there. Their number is looked at first: strangers send forms too, and each field costs time. */
export function formFields(text: string): URLSearchParams {
  let count = 1;
  for (let at = text.indexOf('&'); at !== -1; at = text.indexOf('&', at + 1)) {
    count += 1;
    if (count > maxFields) throw invalid('body', `may have at most ${maxFields} fields.`);
  }
  return new URLSearchParams(text);
}

export function parseForm(text: string): URLSearchParams {
  const fields = new URLSearchParams();
  for (const [name, value] of formFields(text)) fields.append(cleanText(name), cleanText(value));
  return fields;
}

/** JSON, or a form whose field `payload` holds it (Slack, GitHub). */
export function readJsonOrPayload(request: InboundRequest): Json {
  const { type } = mediaType(request);
  if (isJsonType(type)) return readJsonBody(request);
  if (type !== 'application/x-www-form-urlencoded') {
    throw wrongType(type, 'application/json or application/x-www-form-urlencoded');
  }
  const payload = readFormBody(request).get('payload');
  if (payload === null) throw invalid('payload', 'is missing in the form.');
  return parseJson(payload, 'payload');
}

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What lies at a path of a JSON value, when the path is there. */
export function at(value: unknown, ...path: (string | number)[]): unknown {
  let found: unknown = value;
  for (const step of path) {
    if (Array.isArray(found) && typeof step === 'number') found = found[step];
    else if (isObject(found) && Object.hasOwn(found, step)) found = found[step];
    else return undefined;
  }
  return found;
}

/** A text or number there, as text; else null. */
export function textAt(value: unknown, ...path: (string | number)[]): string | null {
  const found = at(value, ...path);
  if (typeof found === 'string') return found;
  return typeof found === 'number' && Number.isFinite(found) ? String(found) : null;
}

/** The texts and numbers of a list there, as texts; what else is in it is left out. */
export function textsAt(value: unknown, ...path: (string | number)[]): string[] {
  return listAt(value, ...path).flatMap((item) => textAt(item) ?? []);
}

export function objectAt(value: unknown, ...path: (string | number)[]): Json {
  const found = at(value, ...path);
  return isObject(found) ? found : {};
}

export function listAt(value: unknown, ...path: (string | number)[]): unknown[] {
  const found = at(value, ...path);
  return Array.isArray(found) ? found : [];
}

/** A text that must be there: its absence means that this is not the sender it claims to be. */
export function needText(value: unknown, ...path: (string | number)[]): string {
  const found = textAt(value, ...path);
  if (found === null || found === '') throw invalid(path.join('.'), 'is missing in the payload.');
  return found;
}
