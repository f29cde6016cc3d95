import { cleanText } from '../domain/clean-text.ts';
import { isBase64, isMediaType, isStorableJson } from '../domain/parts.ts';
import type { Part } from '../domain/parts.ts';
import type { HarnessUpdate } from '../domain/ports/harness.ts';
import { newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import { boundedText, isRecord } from './clean.ts';
import type { Json } from './clean.ts';

export type ArtifactUpdate = Extract<HarnessUpdate, { kind: 'artifact' }>;

/**
 * What an `agent_message_chunk` says of an artifact; null when it is a piece of the answer's text. Every content that is no
 * text is one; `_meta["berth.dev"].artifact`, of the chunk or of its content, makes one of a text too, adds to one that
 * there is, and carries JSON (docs/harness.md).
 */
export function readArtifact(update: Json): ArtifactUpdate | 'malformed' | null {
  const content = isRecord(update['content']) ? update['content'] : {};
  const given = artifactMeta(update) ?? artifactMeta(content);
  if (given === null && (content['type'] === 'text' || content['type'] === undefined)) return null;
  const parts = partsOf(content, given ?? {});
  if (parts.length === 0) return 'malformed';
  const { id, name, description, append, lastChunk } = given ?? {};
  return {
    kind: 'artifact',
    artifactId: typeof id === 'string' && id !== '' && id.length <= 200 ? id : newId(),
    name: textOrNull(name, limits.partNameChars) ?? nameOf(parts),
    description: textOrNull(description, 2_000),
    append: append === true,
    // One that is not said to go on is whole.
    lastChunk: lastChunk !== false,
    parts,
  };
}

function artifactMeta(value: Json): Json | null {
  const meta = isRecord(value['_meta']) ? value['_meta']['berth.dev'] : undefined;
  return isRecord(meta) && isRecord(meta['artifact']) ? meta['artifact'] : null;
}

function partsOf(content: Json, given: Json): Part[] {
  const parts: Part[] = [];
  const part = contentPart(content);
  // A chunk must have a content; a text of nothing stands for that it has none beside the data.
  if (part !== null && !(part.kind === 'text' && part.text === '')) parts.push(part);
  if (given['data'] !== undefined && isStorableJson(given['data'])) {
    parts.push({
      kind: 'data',
      data: given['data'],
      mediaType: mediaType(given['mediaType'], 'application/json'),
    });
  }
  return parts;
}

function contentPart(content: Json): Part | null {
  switch (content['type']) {
    case 'text':
      return typeof content['text'] === 'string' ? { kind: 'text', text: cleanText(content['text']) } : null;
    case 'image':
    case 'audio':
      return filePart(
        content['data'],
        fileName(content['uri']),
        mediaType(content['mimeType'], 'application/octet-stream'),
      );
    case 'resource':
      return isRecord(content['resource']) ? resourcePart(content['resource']) : null;
    case 'resource_link':
      return linkPart(content);
    default:
      return null;
  }
}

function resourcePart({ uri, mimeType, text, blob }: Json): Part | null {
  if (typeof text === 'string') {
    const bytes = Buffer.from(text, 'utf8').toString('base64');
    return filePart(bytes, fileName(uri), mediaType(mimeType, 'text/plain'));
  }
  return filePart(blob, fileName(uri), mediaType(mimeType, 'application/octet-stream'));
}

function filePart(bytes: unknown, name: string | null, type: string): Part | null {
  if (typeof bytes !== 'string' || !isBase64(bytes)) return null;
  return { kind: 'file', name, mediaType: type, bytes };
}

function linkPart({ uri, name, mimeType }: Json): Part | null {
  if (typeof uri !== 'string' || uri === '' || uri.length > limits.partUrlChars) return null;
  const type = typeof mimeType === 'string' && isMediaType(mimeType) ? mimeType : null;
  return { kind: 'link', name: textOrNull(name, limits.partNameChars), mediaType: type, url: uri };
}

/** The last step of a path; a client that saves it under this name writes where it wants to. */
function fileName(uri: unknown): string | null {
  if (typeof uri !== 'string') return null;
  const path = uri.split(/[?#]/, 1)[0]!;
  const last = path
    .split(/[/\\]/)
    .at(-1)!
    .replace(/^[a-z][a-z0-9+.-]*:/i, '');
  return textOrNull(decoded(last), limits.partNameChars);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text).replaceAll(/[/\\]/g, '_').replaceAll('\u0000', '');
  } catch {
    return text;
  }
}

/** What an artifact is called that says nothing of it itself. */
function nameOf(parts: Part[]): string | null {
  const first = parts[0];
  return first && 'name' in first ? first.name : null;
}

function mediaType(value: unknown, otherwise: string): string {
  return typeof value === 'string' && isMediaType(value) ? value : otherwise;
}

function textOrNull(value: unknown, maxChars: number): string | null {
  const text = boundedText(value, maxChars);
  return text === '' ? null : text;
}
