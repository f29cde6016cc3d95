import type { Part } from '@a2a-js/sdk';
import type { MessagePart, Part as OurPart } from '../../domain/parts.ts';
import { ContentTypeNotSupportedError } from './errors.ts';

/** What an agent takes; its card names them. Text needs no media type. */
export const inputModes = [
  'text/plain',
  'text/markdown',
  'text/html',
  'text/csv',
  'text/xml',
  'text/yaml',
  'text/css',
  'text/javascript',
  'text/x-python',
  'application/json',
  'application/xml',
  'application/yaml',
  'application/pdf',
  'application/zip',
  'application/gzip',
  'application/x-tar',
  'application/octet-stream',
  'application/msword',
  'application/vnd.ms-excel',
  'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
  'application/vnd.openxmlformats-officedocument.presentationml.presentation',
  'image/png',
  'image/jpeg',
  'image/gif',
  'image/webp',
  'image/svg+xml',
  'audio/mpeg',
  'audio/wav',
  'audio/ogg',
  'audio/webm',
  'video/mp4',
  'video/webm',
] as const;

export const outputModes = [
  'text/plain',
  'application/json',
  'image/png',
  'image/jpeg',
  'application/octet-stream',
];

const taken = new Set<string>(inputModes);

/** A part of an A2A message; `content` is set (the guard has seen to it). */
export function requireMediaType(mediaType: string, path: string): void {
  if (mediaType === '' || taken.has(mediaType.split(';', 1)[0]!.trim().toLowerCase())) return;
  throw new ContentTypeNotSupportedError(
    `${path}.mediaType: ${JSON.stringify(mediaType.slice(0, 100))} is none of the agent's input modes; see its card.`,
  );
}

export interface ReadParts {
  /** The texts, each from a new line. */
  text: string;
  others: MessagePart[];
  /** What came as data, for an answer to a form. */
  data: unknown[];
}

/** What a message says, as the service keeps it. */
export function readParts(parts: readonly Part[]): ReadParts {
  const texts: string[] = [];
  const others: MessagePart[] = [];
  for (const { content, filename, mediaType } of parts) {
    const name = filename === '' ? null : filename;
    switch (content?.$case) {
      case 'text':
        texts.push(content.value);
        break;
      case 'raw':
        others.push({
          kind: 'file',
          name,
          mediaType: mediaType || 'application/octet-stream',
          bytes: content.value.toString('base64'),
        });
        break;
      case 'url':
        others.push({ kind: 'link', name, mediaType: mediaType || null, url: content.value });
        break;
      case 'data':
        others.push({
          kind: 'data',
          data: content.value as unknown,
          mediaType: mediaType || 'application/json',
        });
    }
  }
  const data = others.flatMap((part) => (part.kind === 'data' ? [part.data] : []));
  return { text: texts.join('\n'), others, data };
}

export function textPart(value: string): Part {
  return { content: { $case: 'text', value }, metadata: undefined, filename: '', mediaType: 'text/plain' };
}

export function dataPart(value: unknown): Part {
  return {
    content: { $case: 'data', value },
    metadata: undefined,
    filename: '',
    mediaType: 'application/json',
  };
}

export function partOf(part: OurPart): Part {
  switch (part.kind) {
    case 'text':
      return textPart(part.text);
    case 'data':
      return { ...dataPart(part.data), mediaType: part.mediaType };
    case 'file':
      return {
        content: { $case: 'raw', value: Buffer.from(part.bytes, 'base64') },
        metadata: undefined,
        filename: part.name ?? '',
        mediaType: part.mediaType,
      };
    case 'link':
      return {
        content: { $case: 'url', value: part.url },
        metadata: undefined,
        filename: part.name ?? '',
        mediaType: part.mediaType ?? '',
      };
  }
}
