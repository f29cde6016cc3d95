import type { Image } from './transcript.ts';

export interface Prompt {
  text: string;
  images: Image[];
}

/** What every wire takes; models look at no others. */
const imageTypes = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

/** A prompt's content blocks; null when it is no array of them. Blocks of other kinds are named, not shown. */
export function readPrompt(prompt: unknown): Prompt | null {
  if (!Array.isArray(prompt)) return null;
  const parts: string[] = [];
  const images: Image[] = [];
  for (const block of prompt) {
    if (typeof block !== 'object' || block === null) return null;
    const image = imageOf(block as Record<string, unknown>);
    if (image) images.push(image);
    else parts.push(blockText(block as Record<string, unknown>));
  }
  return { text: parts.filter((part) => part !== '').join('\n\n'), images };
}

function imageOf(block: Record<string, unknown>): Image | null {
  const { type, mimeType, data } = block;
  if (type !== 'image' || typeof mimeType !== 'string' || typeof data !== 'string') return null;
  return imageTypes.has(mimeType) ? { mediaType: mimeType, data } : null;
}

function blockText(block: Record<string, unknown>): string {
  if (block['type'] === 'text') return `${block['text'] ?? ''}`;
  if (block['type'] === 'resource_link') return `[${block['name'] ?? 'resource'}](${block['uri'] ?? ''})`;
  const resource = block['resource'] as Record<string, unknown> | undefined;
  if (block['type'] === 'resource' && typeof resource?.['text'] === 'string') {
    return `<resource uri="${resource['uri'] ?? ''}">\n${resource['text']}\n</resource>`;
  }
  const { uri = '', mimeType = 'unknown type' } = resource ?? block;
  return `[A part of kind "${block['type']}" (${mimeType} ${uri}) is left out: this agent reads text and looks at images.]`;
}
