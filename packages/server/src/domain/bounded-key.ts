import { createHash } from 'node:crypto';
import { cleanText } from './clean-text.ts';

const maxChars = 300;

/** A text of a stranger as a key of an index, which takes no long ones and no U+0000: a long one is its hash. */
export function boundedKey(text: string): string {
  if (text.length <= maxChars) return cleanText(text);
  return `sha256:${createHash('sha256').update(text).digest('hex')}`;
}
