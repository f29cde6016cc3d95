import { mailLimits } from './message.ts';

const maxBoundaries = 40;

/**
 * Whether a message has more parts than a parser should be given: counted as boundary lines, in time that grows with
 * the length alone, before anything is parsed.
 */
export function hasTooManyParts(raw: Buffer): boolean {
  const boundaries = findBoundaries(raw);
  if (boundaries === null) return true;
  let count = 0;
  for (const boundary of boundaries) {
    const line = Buffer.from(`\n--${boundary}`, 'latin1');
    for (let at = raw.indexOf(line); at !== -1; at = raw.indexOf(line, at + line.length)) {
      count += 1;
      if (count > mailLimits.parts) return true;
    }
  }
  return false;
}

/** Null when there are too many of them, which is nesting beyond any honest mail. */
function findBoundaries(raw: Buffer): Set<string> | null {
  const text = raw.toString('latin1');
  const found = new Set<string>();
  for (const match of text.matchAll(/boundary\s*\*?0?\*?\s*=\s*(?:"([^"\r\n]{1,200})"|([^\s;"]{1,200}))/gi)) {
    found.add(match[1] ?? match[2] ?? '');
    if (found.size > maxBoundaries) return null;
  }
  return found;
}
