import { opendir } from 'node:fs/promises';
import { fdPath } from './walk.ts';

/** So many names are kept in memory at once; a folder may have a million. */
const SORTED_MAX = 50_000;

/** The names in an open folder. Those of folders beyond a size come in sorted portions. */
export async function* namesIn(folderFd: number): AsyncGenerator<Buffer> {
  let portion: Buffer[] = [];
  for await (const name of unsorted(folderFd)) {
    portion.push(name);
    if (portion.length < SORTED_MAX) continue;
    yield* portion.sort(Buffer.compare);
    portion = [];
  }
  yield* portion.sort(Buffer.compare);
}

/** The first `limit` names after `after` in byte order, whatever the size of the folder, in little memory. */
export async function smallestNames(
  folderFd: number,
  after: Buffer | null,
  limit: number,
): Promise<Buffer[]> {
  let kept: Buffer[] = [];
  let bound: Buffer | null = null;
  for await (const name of unsorted(folderFd)) {
    if (after !== null && Buffer.compare(name, after) <= 0) continue;
    if (bound !== null && Buffer.compare(name, bound) >= 0) continue;
    kept.push(name);
    if (kept.length < limit * 4) continue;
    kept = kept.sort(Buffer.compare).slice(0, limit);
    bound = kept.at(-1)!;
  }
  return kept.sort(Buffer.compare).slice(0, limit);
}

async function* unsorted(folderFd: number): AsyncGenerator<Buffer> {
  // The types of Node do not know that names can be bytes here.
  const options = { encoding: 'buffer' as BufferEncoding, bufferSize: 512 };
  for await (const entry of await opendir(fdPath(folderFd), options)) yield entry.name as unknown as Buffer;
}
