import type { ContentBlock } from '@agentclientprotocol/sdk';
import { describeParts } from '../domain/parts.ts';
import type { MessagePart } from '../domain/parts.ts';
import type { PromptKinds } from './channel.ts';

/** Text of this many bytes goes to an agent that takes no embedded resources; of more it is told what it is. */
const maxInlineBytes = 256 * 1024;

/**
 * The parts of a message as content of a prompt (Agent Client Protocol, "Content"). Every agent takes texts and links; what
 * it does not take otherwise is told in words, so that it knows at least that there was something.
 */
export function promptBlocks(parts: readonly MessagePart[], takes: PromptKinds): ContentBlock[] {
  return parts.map((part, index) => promptBlock(part, index + 1, takes));
}

function promptBlock(part: MessagePart, number: number, takes: PromptKinds): ContentBlock {
  switch (part.kind) {
    case 'data': {
      const text = JSON.stringify(part.data);
      if (!takes.embeddedContext) return { type: 'text', text };
      const uri = `berth:part/${number}/data.json`;
      return { type: 'resource', resource: { uri, mimeType: part.mediaType, text } };
    }
    case 'link': {
      const { url: uri, name, mediaType } = part;
      return {
        type: 'resource_link',
        uri,
        name: name ?? uri,
        ...(mediaType !== null && { mimeType: mediaType }),
      };
    }
    case 'file':
      return fileBlock(part, number, takes);
  }
}

function fileBlock(
  part: Extract<MessagePart, { kind: 'file' }>,
  number: number,
  takes: PromptKinds,
): ContentBlock {
  const { name, mediaType: mimeType, bytes } = part;
  const uri = `berth:part/${number}/${encodeURIComponent(name ?? 'file')}`;
  if (takes.image && mimeType.startsWith('image/')) return { type: 'image', data: bytes, mimeType, uri };
  if (takes.audio && mimeType.startsWith('audio/')) return { type: 'audio', data: bytes, mimeType };
  const text = textOfFile(part);
  if (takes.embeddedContext) {
    return { type: 'resource', resource: { uri, mimeType, ...(text === null ? { blob: bytes } : { text }) } };
  }
  if (text === null || text.length > maxInlineBytes) return { type: 'text', text: describeParts([part]) };
  return { type: 'text', text: `File ${name ?? 'without a name'} (${mimeType}):\n${text}` };
}

const textTypes = /^(?:text\/|application\/(?:[^;]+\+)?(?:json|xml|yaml|javascript|x-sh|sql|toml)\b)/i;

/** The text of a file that says that it is one, and is. */
function textOfFile({ mediaType, bytes }: { mediaType: string; bytes: string }): string | null {
  if (!textTypes.test(mediaType)) return null;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(bytes, 'base64'));
  } catch {
    return null;
  }
}
