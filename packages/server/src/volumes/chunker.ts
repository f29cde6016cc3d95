import { createHash } from 'node:crypto';

const MIN_BYTES = 256 * 1024;
const MAX_BYTES = 4 * 1024 * 1024;
/** Twenty bits of the hash are zero once in a mebibyte. */
const SHIFT = 12;

/** A random number for each value of a byte, the same on every machine. */
const gear = Int32Array.from({ length: 256 }, (_, byte) =>
  createHash('sha256').update(`berth gear ${byte}`).digest().readInt32LE(0),
);

/**
 * Cuts a stream where its content says so ("FastCDC", Xia et al., 2016, without its normalisation): what is inserted
 * somewhere changes the chunks around it, and all others are the same as before.
 */
export async function* chunksOf(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let length = 0;
  let hash = 0;
  for await (const piece of source) {
    let from = 0;
    for (let at = 0; at < piece.length; at += 1) {
      length += 1;
      hash = ((hash << 1) + gear[piece[at]!]!) | 0;
      if (length < MIN_BYTES || (hash >>> SHIFT !== 0 && length < MAX_BYTES)) continue;
      parts.push(piece.subarray(from, at + 1));
      yield Buffer.concat(parts);
      from = at + 1;
      parts = [];
      length = 0;
      hash = 0;
    }
    if (from < piece.length) parts.push(piece.subarray(from));
  }
  if (length > 0) yield Buffer.concat(parts);
}
