import { fstatSync } from 'node:fs';
import type { BigIntStats } from 'node:fs';
import type { VolumePath } from '../domain/ports/volume.ts';
import { tarBlock, tarEnd, tarHeader } from '../domain/tar.ts';
import { letGo } from './calls.ts';
import { namesIn } from './names.ts';
import { PIECE_BYTES, pieces, ShorterError } from './read.ts';
import { turn } from './turns.ts';
import { conflict, MAX_DEPTH, openEntry, openToRead, step, targetOf, told } from './walk.ts';

/** So many files with several names are remembered; those beyond are written once for each name. */
const LINKED_MAX = 100_000;
const none: Buffer = Buffer.alloc(0);

interface Walk {
  volumeDir: string;
  /** Path in the archive of each file with several names that was written, by its inode. */
  linked: Map<string, Buffer>;
}

/**
 * A folder's content (or one file) as a tar archive, in the order of names, read as it is taken: no more than a piece
 * is in memory. Pipes, sockets and devices are left out. Links are written as links.
 */
export async function* tarOf(volumeDir: string, path: VolumePath): AsyncGenerator<Buffer> {
  const { fd, stats } = openEntry(volumeDir, path);
  const walk: Walk = { volumeDir, linked: new Map() };
  try {
    yield* joined(archiveOf(fd, stats, path, walk));
  } catch (error) {
    throw told(error);
  }
}

/** Both trees of a volume, as folders of their names. */
export async function* tarOfVolume(volumeDir: string): AsyncGenerator<Buffer> {
  const walk: Walk = { volumeDir, linked: new Map() };
  yield* joined(treesOf(volumeDir, walk));
}

async function* treesOf(volumeDir: string, walk: Walk): AsyncGenerator<Buffer> {
  for (const tree of ['workspace', 'home'] as const) {
    const { fd, stats } = openEntry(volumeDir, { tree, names: [] });
    try {
      yield header('directory', Buffer.from(tree), stats);
      yield* folder(fd, Buffer.from(tree), 0, walk);
    } finally {
      await letGo(walk.volumeDir, fd);
    }
  }
  yield tarEnd;
}

async function* archiveOf(
  fd: number,
  stats: BigIntStats,
  path: VolumePath,
  walk: Walk,
): AsyncGenerator<Buffer> {
  try {
    if (stats.isDirectory()) yield* folder(fd, none, 0, walk);
    else if (stats.isFile()) yield* file(fd, stats, path.names.at(-1)!, walk);
    else throw conflict('Only folders and files can be had as an archive.');
  } finally {
    await letGo(walk.volumeDir, fd);
  }
  yield tarEnd;
}

async function* folder(fd: number, path: Buffer, depth: number, walk: Walk): AsyncGenerator<Buffer> {
  if (depth >= MAX_DEPTH)
    throw conflict(`Folders are nested deeper than ${MAX_DEPTH}; archive a part of them.`);
  for await (const name of namesIn(walk.volumeDir, fd)) {
    await turn();
    let at: number;
    try {
      at = step(fd, name);
    } catch {
      continue; // It went away meanwhile.
    }
    try {
      const inner = path.length === 0 ? name : Buffer.concat([path, Buffer.from('/'), name]);
      const stats = fstatSync(at, { bigint: true });
      if (stats.isDirectory()) {
        yield header('directory', inner, stats);
        yield* folder(at, inner, depth + 1, walk);
      } else if (stats.isFile()) {
        yield* file(at, stats, inner, walk);
      } else if (stats.isSymbolicLink()) {
        const target = targetOf(fd, name);
        if (target) yield header('symlink', inner, stats, target);
      }
    } finally {
      await letGo(walk.volumeDir, at);
    }
  }
}

async function* file(fd: number, stats: BigIntStats, path: Buffer, walk: Walk): AsyncGenerator<Buffer> {
  if (stats.nlink > 1n) {
    const key = `${stats.dev}:${stats.ino}`;
    const first = walk.linked.get(key);
    if (first) return yield header('hardlink', path, stats, first);
    if (walk.linked.size < LINKED_MAX) walk.linked.set(key, path);
  }
  const size = Number(stats.size);
  yield header('file', path, stats);
  let left = size;
  if (size > 0) {
    const readFd = openToRead(fd);
    try {
      for await (const piece of pieces(walk.volumeDir, readFd, 0, size)) {
        left -= piece.length;
        yield piece;
      }
    } catch (error) {
      if (!(error instanceof ShorterError)) throw error;
    } finally {
      await letGo(walk.volumeDir, readFd);
    }
  }
  // Its length is promised by its header: what was cut off meanwhile is filled with zeros, as tar does.
  for (; left > 0; left -= Math.min(left, PIECE_BYTES)) yield Buffer.alloc(Math.min(left, PIECE_BYTES));
  const rest = size % tarBlock;
  if (rest > 0) yield Buffer.alloc(tarBlock - rest);
}

function header(
  kind: 'file' | 'directory' | 'symlink' | 'hardlink',
  path: Buffer,
  stats: BigIntStats,
  target = none,
): Buffer {
  const mode = Number(stats.mode & 0o777n);
  const mtimeSeconds = Number(stats.mtimeMs / 1000n);
  return tarHeader({ path, kind, mode, sizeBytes: Number(stats.size), target, mtimeSeconds });
}

/** Small files are many: their headers and content go out in pieces of a useful size. */
async function* joined(source: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
  let waiting: Buffer[] = [];
  let bytes = 0;
  for await (const part of source) {
    waiting.push(part);
    bytes += part.length;
    if (bytes < PIECE_BYTES) continue;
    yield Buffer.concat(waiting);
    waiting = [];
    bytes = 0;
  }
  if (bytes > 0) yield Buffer.concat(waiting);
}
