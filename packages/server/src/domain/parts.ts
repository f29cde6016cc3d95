import { invalid } from './errors.ts';
import { limits } from './limits.ts';
import { requireStorable } from './text.ts';

/** A piece of a message or of an artifact. Every wire has its own shape for these four; here they have one. */
export type Part = { kind: 'text'; text: string } | MessagePart;

/** What a message may carry beside its text. */
export type MessagePart =
  /** Any JSON value. */
  | { kind: 'data'; data: unknown; mediaType: string }
  /** `bytes`: base64 (RFC 4648, section 4), padded. `name` null = it has none. */
  | { kind: 'file'; name: string | null; mediaType: string; bytes: string }
  | { kind: 'link'; name: string | null; mediaType: string | null; url: string };

/** What an agent made in a run, put together from its updates. */
export interface Artifact {
  artifactId: string;
  name: string | null;
  description: string | null;
  parts: Part[];
}

/** What a caller gives with a message beside its text. */
export interface MessageExtras {
  parts: MessagePart[];
  /** The sender's own id of the message; nothing is derived from it. */
  clientMessageId: string | null;
  /** Handed to the agent as it is. */
  metadata: Record<string, unknown> | null;
}

/** As a message shows them: what there is none of is left out. */
export function shownExtras(extras: MessageExtras | null): {
  parts?: MessagePart[];
  clientMessageId?: string;
  metadata?: Record<string, unknown>;
} {
  if (extras === null) return {};
  const { parts, clientMessageId, metadata } = extras;
  return {
    ...(parts.length > 0 && { parts }),
    ...(clientMessageId !== null && { clientMessageId }),
    ...(metadata !== null && { metadata }),
  };
}

const mediaTypePattern = /^[A-Za-z0-9!#$&^_.+-]{1,127}\/[A-Za-z0-9!#$&^_.+-]{1,127}(?:\s*;[^\r\n]{0,200})?$/;
const maxDepth = 64;

export function isMediaType(text: string): boolean {
  return text.length <= 300 && mediaTypePattern.test(text);
}

/** Looks for what does not belong, since an expression for the whole of a long text would run out of stack. */
export function isBase64(text: string): boolean {
  if (text.length % 4 !== 0 || /[^A-Za-z0-9+/=]/.test(text)) return false;
  const end = text.indexOf('=');
  return end === -1 || (end >= text.length - 2 && text.endsWith('='));
}

/** How many bytes a base64 text stands for. */
export function base64Bytes(text: string): number {
  return (text.length / 4) * 3 - (text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0);
}

/**
 * Whether a JSON value can be handed on: not nested without end, and every text and number of it can be stored. A number
 * that is too large for a double is read as infinite, and would be written as null.
 */
export function isStorableJson(value: unknown, depth = 0): boolean {
  if (typeof value === 'string') return value.isWellFormed() && !value.includes('\u0000');
  if (typeof value === 'number') return Number.isFinite(value);
  if (value === null || typeof value !== 'object') return true;
  if (depth >= maxDepth) return false;
  if (Array.isArray(value)) return value.every((item) => isStorableJson(item, depth + 1));
  return Object.entries(value).every(
    ([key, item]) => isStorableJson(key, depth + 1) && isStorableJson(item, depth + 1),
  );
}

/** Throws `invalid_request` where a part is not what its kind says, or they are too many or too large together. */
export function requireParts(path: string, parts: readonly MessagePart[]): void {
  if (parts.length > limits.partsPerMessage) {
    throw invalid(path, `must have at most ${limits.partsPerMessage} entries.`);
  }
  parts.forEach((part, index) => requirePart(`${path}.${index}`, part));
  if (parts.length > 0 && jsonChars(parts) > limits.partsChars) {
    throw invalid(path, `must have at most ${limits.partsChars} characters together, written as JSON.`);
  }
}

function requirePart(path: string, part: MessagePart): void {
  if (part.mediaType !== null && !isMediaType(part.mediaType)) {
    throw invalid(`${path}.mediaType`, 'must be a media type, such as application/pdf.');
  }
  switch (part.kind) {
    case 'data':
      return requireStorableJson(`${path}.data`, part.data);
    case 'file':
      requireName(`${path}.name`, part.name);
      if (!isBase64(part.bytes)) throw invalid(`${path}.bytes`, 'must be base64 with padding.');
      return;
    case 'link':
      requireName(`${path}.name`, part.name);
      return requireUrl(`${path}.url`, part.url);
  }
}

function requireName(path: string, name: string | null): void {
  if (name === null) return;
  requireStorable(path, name);
  if (name.length > limits.partNameChars) {
    throw invalid(path, `must have at most ${limits.partNameChars} characters.`);
  }
}

/** Not fetched by the service: what a link leads to is the agent's affair, behind its egress policy. */
function requireUrl(path: string, url: string): void {
  requireStorable(path, url);
  if (url.length > limits.partUrlChars || !/^[A-Za-z][A-Za-z0-9+.-]*:[^\s]+$/.test(url)) {
    throw invalid(path, `must be an absolute URL of at most ${limits.partUrlChars} characters.`);
  }
}

/** Throws `invalid_request`. */
export function requireClientMessageId(path: string, id: string): void {
  requireStorable(path, id);
  if (id === '' || id.length > limits.clientMessageIdChars) {
    throw invalid(path, `must have 1 to ${limits.clientMessageIdChars} characters.`);
  }
}

/** Throws `invalid_request`. */
export function requireMetadata(path: string, metadata: Record<string, unknown>): void {
  requireStorableJson(path, metadata);
  if (jsonChars(metadata) > limits.metadataChars) {
    throw invalid(path, `must have at most ${limits.metadataChars} characters, written as JSON.`);
  }
}

function requireStorableJson(path: string, value: unknown): void {
  if (value !== undefined && isStorableJson(value)) return;
  const what = `JSON of at most ${maxDepth} levels, without U+0000 and numbers beyond 1.8e308`;
  throw invalid(path, `must be ${what}.`);
}

function jsonChars(value: unknown): number {
  return JSON.stringify(value).length;
}

/** What stands for the parts where only text is told: in a title, and in the history of a conversation. */
export function describeParts(parts: readonly Part[]): string {
  return parts.map(describePart).join('\n');
}

function describePart(part: Part): string {
  switch (part.kind) {
    case 'text':
      return part.text;
    case 'data': {
      const json = JSON.stringify(part.data);
      return json.length <= 2_000 ? json : `[data, ${part.mediaType}, ${json.length} characters]`;
    }
    case 'file':
      return `[file ${part.name ?? 'without a name'}, ${part.mediaType}, ${base64Bytes(part.bytes)} bytes]`;
    case 'link':
      return `[${part.name ?? 'link'}](${part.url})`;
  }
}
