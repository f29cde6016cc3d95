import { createHash, randomUUID } from 'node:crypto';
import { access, mkdir, open, readdir, readFile, rename, rm, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { constants, zstdCompress, zstdDecompress } from 'node:zlib';
import type { Chunk } from '../domain/ports/volume.ts';
import { chunksOf } from './chunker.ts';

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);
const LEVEL = 3;
const CHUNK_MAX_BYTES = 4 * 1024 * 1024;

const pathOf = (dir: string, hash: string): string => join(dir, hash.slice(0, 2), hash);

/** What `saveChunks` may take. */
export interface Room {
  maxBytes: number;
  /** Throws when so many bytes more do not fit on the disk. */
  check(bytes: number): Promise<void>;
}

/**
 * Writes a stream as chunks under the hash of their content; those that are there already take no more room. Null: it is
 * longer than it may be. Whenever it is not saved whole, nothing of it is left; no other save may run in the same folder.
 */
export async function saveChunks(
  dir: string,
  source: AsyncIterable<Buffer>,
  room: Room,
): Promise<{ chunks: Chunk[]; bytes: number; storedBytes: number } | null> {
  const chunks: Chunk[] = [];
  const added: string[] = [];
  let bytes = 0;
  let storedBytes = 0;
  let isWhole = false;
  try {
    for await (const content of chunksOf(source)) {
      bytes += content.length;
      if (bytes > room.maxBytes) return null;
      const hash = createHash('sha256').update(content).digest('hex');
      chunks.push({ hash, bytes: content.length });
      const took = await saveOne(dir, hash, content, room);
      if (took > 0) added.push(hash);
      storedBytes += took;
    }
    isWhole = true;
    return { chunks, bytes, storedBytes };
  } finally {
    if (!isWhole) for (const hash of added) await rm(pathOf(dir, hash), { force: true });
  }
}

async function saveOne(dir: string, hash: string, content: Buffer, room: Room): Promise<number> {
  const path = pathOf(dir, hash);
  if (await isThere(path)) return 0;
  const packed = await compress(content, { params: { [constants.ZSTD_c_compressionLevel]: LEVEL } });
  await room.check(packed.length);
  await mkdir(join(dir, hash.slice(0, 2)), { recursive: true, mode: 0o700 });
  const temporary = join(dir, `tmp-${randomUUID()}`);
  try {
    const file = await open(temporary, 'wx', 0o600);
    try {
      await file.writeFile(packed);
      await file.datasync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } finally {
    await rm(temporary, { force: true });
  }
  return packed.length;
}

/** The stream again. Every chunk is checked against its hash: a damaged disk shows here, not in a workspace. */
export async function* loadChunks(dir: string, chunks: Chunk[]): AsyncGenerator<Buffer> {
  for (const { hash, bytes } of chunks) {
    const packed = await readFile(pathOf(dir, hash));
    const content = await decompress(packed, { maxOutputLength: CHUNK_MAX_BYTES });
    const isRight = content.length === bytes && createHash('sha256').update(content).digest('hex') === hash;
    if (!isRight) throw new Error(`The chunk ${hash} of a snapshot is damaged.`);
    yield content;
  }
}

/** Deletes the chunks that nothing refers to. No save may run in the same folder meanwhile. */
export async function sweepChunks(dir: string, kept: ReadonlySet<string>): Promise<void> {
  for (const name of await namesIn(dir)) {
    if (name.startsWith('tmp-')) await rm(join(dir, name), { force: true });
    if (!/^[0-9a-f]{2}$/.test(name)) continue;
    for (const hash of await namesIn(join(dir, name)))
      if (!kept.has(hash)) await unlink(join(dir, name, hash));
  }
}

async function namesIn(dir: string): Promise<string[]> {
  return readdir(dir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
}

async function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
