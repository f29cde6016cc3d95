import type { Dir } from 'node:fs';
import { opendir } from 'node:fs/promises';
import { deed } from '../domain/deeds.ts';
import { fdPath } from './walk.ts';

/** So many names are kept in memory at once; a folder may have a million. */
const SORTED_MAX = 50_000;

/** So many are sorted in one go, which takes a few milliseconds. */
const RUN_MAX = 2_000;

/** So many are read in one go. */
const READ_MAX = 512;

/** The names in an open folder. Those of folders beyond a size come in sorted portions. */
export async function* namesIn(volumeDir: string, folderFd: number): AsyncGenerator<Buffer> {
  let runs: Buffer[][] = [];
  let run: Buffer[] = [];
  for await (const name of unsorted(volumeDir, folderFd)) {
    run.push(name);
    if (run.length < RUN_MAX) continue;
    runs.push(run.sort(Buffer.compare));
    run = [];
    if (runs.length * RUN_MAX < SORTED_MAX) continue;
    yield* merged(runs);
    runs = [];
  }
  yield* merged([...runs, run.sort(Buffer.compare)]);
}

/** Sorts as it is taken, so that whoever pauses between names pauses the sorting. */
function* merged(runs: Buffer[][]): Generator<Buffer> {
  const heads = runs.filter((run) => run.length > 0).map((run) => ({ run, at: 0 }));
  while (heads.length > 0) {
    let least = 0;
    let name = heads[0]!.run[heads[0]!.at]!;
    for (let index = 1; index < heads.length; index += 1) {
      const other = heads[index]!.run[heads[index]!.at]!;
      if (Buffer.compare(other, name) >= 0) continue;
      least = index;
      name = other;
    }
    const head = heads[least]!;
    head.at += 1;
    if (head.at === head.run.length) heads.splice(least, 1);
    yield name;
  }
}

/** The first `limit` names after `after` in byte order, whatever the size of the folder, in little memory. */
export async function smallestNames(
  volumeDir: string,
  folderFd: number,
  after: Buffer | null,
  limit: number,
): Promise<Buffer[]> {
  let kept: Buffer[] = [];
  let bound: Buffer | null = null;
  for await (const name of unsorted(volumeDir, folderFd)) {
    if (after !== null && Buffer.compare(name, after) <= 0) continue;
    if (bound !== null && Buffer.compare(name, bound) >= 0) continue;
    kept.push(name);
    if (kept.length < limit * 4) continue;
    kept = kept.sort(Buffer.compare).slice(0, limit);
    bound = kept.at(-1)!;
  }
  return kept.sort(Buffer.compare).slice(0, limit);
}

async function* unsorted(volumeDir: string, folderFd: number): AsyncGenerator<Buffer> {
  // The types of Node do not know that names can be bytes here.
  const options = { encoding: 'buffer' as BufferEncoding, bufferSize: READ_MAX };
  const folder = await deed(volumeDir, () => opendir(fdPath(folderFd), options));
  try {
    for (;;) {
      const names = await deed(volumeDir, () => someOf(folder));
      yield* names;
      if (names.length < READ_MAX) return;
    }
  } finally {
    await deed(volumeDir, () => folder.close());
  }
}

/** As many as are read in one go, less only at the end. */
async function someOf(folder: Dir): Promise<Buffer[]> {
  const names: Buffer[] = [];
  while (names.length < READ_MAX) {
    const entry = await folder.read();
    if (!entry) break;
    names.push(entry.name as unknown as Buffer);
  }
  return names;
}
