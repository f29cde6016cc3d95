import type { MessagePart } from '../../domain/parts.ts';

type Fields = Record<string, unknown>;

/**
 * An image, file or sound of a message, as chat completions (`image_url`, `file`, `input_audio`) and responses
 * (`input_image`, `input_file`) have them. Null for whatever is none of these, such as a file that was stored elsewhere.
 */
export function partOf(part: Fields): MessagePart | null {
  switch (part['type']) {
    case 'image_url':
      return fromUrl((part['image_url'] as Fields | null | undefined)?.['url'], null);
    case 'input_image':
      return fromUrl(part['image_url'], null);
    case 'file':
      return fromFile((part['file'] as Fields | null | undefined) ?? {});
    case 'input_file':
      return typeof part['file_url'] === 'string' ? fromUrl(part['file_url'], null) : fromFile(part);
    case 'input_audio': {
      const { data, format } = (part['input_audio'] ?? {}) as Fields;
      if (typeof data !== 'string' || typeof format !== 'string') return null;
      return { kind: 'file', name: null, mediaType: `audio/${format}`, bytes: data };
    }
    default:
      return null;
  }
}

function fromFile(file: Fields): MessagePart | null {
  const name = typeof file['filename'] === 'string' ? file['filename'] : null;
  return fromUrl(file['file_data'], name);
}

/** RFC 2397 for content that is sent along; any other URL is the agent's to fetch. */
function fromUrl(url: unknown, name: string | null): MessagePart | null {
  if (typeof url !== 'string' || url === '') return null;
  if (!/^data:/i.test(url)) return name === null ? { kind: 'link', name, mediaType: null, url } : null;
  // Cut by hand: an expression over all of a large content would be slow.
  const comma = url.indexOf(',');
  const head = url.slice(5, comma);
  if (comma === -1 || !/;base64$/i.test(head)) return null;
  const mediaType = head.slice(0, -7) || 'application/octet-stream';
  return { kind: 'file', name, mediaType, bytes: url.slice(comma + 1) };
}
