import { createHash } from 'node:crypto';
import { cleanText } from './clean-text.ts';

const maxChars = 300;

const hashPrefix = 'sha256:';

/**
 * A text of a stranger as a key of an index, which takes no long ones and no U+0000: a long one is its hash. No other text
 * becomes a key that begins as a hash does.
 */
export function boundedKey(text: string): string {
  if (text.length <= maxChars && !text.startsWith(hashPrefix)) return cleanText(text);
  return `${hashPrefix}${createHash('sha256').update(text).digest('hex')}`;
}
