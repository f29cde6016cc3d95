import { cleanText } from './clean-text.ts';

/** Of a name in a volume; file systems take 255. */
const nameBytes = 120;
const endingChars = 12;

/**
 * A name that a stranger gave, as the name of a file: nothing in it leads elsewhere, hides, or looks like another name.
 * `taken` holds names in lower case, and gets this one.
 */
export function attachmentName(given: string, taken: Set<string>): string {
  const last = cleanText(given).normalize('NFC').split(/[/\\]/).at(-1) ?? '';
  const plain = last
    // Control characters, those that turn the direction of text, and those of no width.
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\ufffd]/gu, '')
    .replace(/[<>:"|?*]/g, '_')
    .replace(/\s+/g, ' ')
    .replace(/^[. ]+|[. ]+$/g, '');
  const dot = plain.lastIndexOf('.');
  const ending = dot > 0 && plain.length - dot <= endingChars ? plain.slice(dot) : '';
  const stem =
    cut(plain.slice(0, plain.length - ending.length), nameBytes - Buffer.byteLength(ending)) || 'file';
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? stem + ending : `${stem}-${number}${ending}`;
    if (taken.has(name.toLowerCase())) continue;
    taken.add(name.toLowerCase());
    return name;
  }
}

function cut(text: string, maxBytes: number): string {
  let bytes = 0;
  let kept = '';
  for (const character of text) {
    bytes += Buffer.byteLength(character);
    if (bytes > maxBytes) break;
    kept += character;
  }
  return kept.trimEnd();
}
