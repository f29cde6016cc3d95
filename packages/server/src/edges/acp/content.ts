import type { ContentBlock } from '@agentclientprotocol/sdk';
import type { MessagePart, Part } from '../../domain/parts.ts';
import { invalidParams } from './errors.ts';

/**
 * A prompt's blocks as a message (Agent Client Protocol v1, "Content"): text is its text, everything else a part of it,
 * whose name stands in the text where the block stood.
 */
export function messageOf(blocks: ContentBlock[]): { content: string; parts: MessagePart[] } {
  if (blocks.length === 0) throw invalidParams('prompt', 'must have at least one block.');
  const parts: MessagePart[] = [];
  let content = '';
  blocks.forEach((block, index) => {
    if (block.type === 'text') return void (content += block.text);
    const part = partOf(block, index);
    parts.push(part);
    if (part.kind !== 'data' && part.name !== null) content += `@${part.name}`;
  });
  return { content, parts };
}

function partOf(block: Exclude<ContentBlock, { type: 'text' }>, index: number): MessagePart {
  switch (block.type) {
    case 'resource_link':
      return {
        kind: 'link',
        name: block.title ?? block.name,
        mediaType: block.mimeType ?? null,
        url: block.uri,
      };
    case 'resource': {
      const { resource } = block;
      const name = nameOf(resource.uri);
      const isText = 'text' in resource;
      const mediaType = resource.mimeType ?? (isText ? 'text/plain' : 'application/octet-stream');
      const bytes = isText ? Buffer.from(resource.text).toString('base64') : resource.blob;
      return { kind: 'file', name, mediaType, bytes };
    }
    case 'image':
    case 'audio':
      return { kind: 'file', name: null, mediaType: block.mimeType, bytes: block.data };
    default:
      throw invalidParams(`prompt.${index}`, 'is of a type that is not known.');
  }
}

function nameOf(uri: string): string | null {
  const last = uri.split(/[?#]/, 1)[0]!.split('/').at(-1)!;
  try {
    return decodeURIComponent(last) || null;
  } catch {
    return last || null;
  }
}

/** A part of a message or an artifact as a block. `place` makes the address of what has none. */
export function blockOf(part: Part, place: string): ContentBlock {
  switch (part.kind) {
    case 'text':
      return { type: 'text', text: part.text };
    case 'data':
      return {
        type: 'resource',
        resource: { uri: `${place}.json`, mimeType: part.mediaType, text: JSON.stringify(part.data) },
      };
    case 'link': {
      const { url: uri, name, mediaType } = part;
      return {
        type: 'resource_link',
        uri,
        name: name ?? uri,
        ...(mediaType !== null && { mimeType: mediaType }),
      };
    }
    case 'file': {
      const { name, mediaType: mimeType, bytes } = part;
      if (mimeType.startsWith('image/')) return { type: 'image', data: bytes, mimeType };
      if (mimeType.startsWith('audio/')) return { type: 'audio', data: bytes, mimeType };
      const uri = name === null ? place : `${place}/${encodeURIComponent(name)}`;
      return { type: 'resource', resource: { uri, mimeType, blob: bytes } };
    }
  }
}
