import { createHash } from 'node:crypto';
import { cleanText } from './clean-text.ts';

const maxChars = 300;

/** What is made here and in the store (`insertBatch`): a hash, or a retry of another. */
const made = /^sha256:(?:[0-9a-f]{64}$|retry )/;

/**
 * A text of a stranger as a key of an index, which takes no long ones and no U+0000: a long one is its hash. No other text
 * becomes a key that looks like one that was made.
 */
export function boundedKey(text: string): string {
  if (text.length <= maxChars && !made.test(text)) return cleanText(text);
  return `sha256:${createHash('sha256').update(text).digest('hex')}`;
}
