import { constants } from 'node:fs';
import { copyFile, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isId } from '../domain/ids.ts';

/**
 * Copies the chunks of all snapshots: `<organisation>/<two digits>/<SHA-256>`. Each file is written once and whole, so
 * that a service may go on meanwhile; a chunk that it deletes meanwhile is left out. Returns how many there are.
 */
export async function copyChunks(from: string, to: string): Promise<number> {
  let count = 0;
  await mkdir(to, { recursive: true, mode: 0o700 });
  for (const orgId of (await namesIn(from)).filter(isId)) {
    for (const prefix of (await namesIn(join(from, orgId))).filter((name) => /^[0-9a-f]{2}$/.test(name))) {
      const folder = join(to, orgId, prefix);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      for (const hash of await namesIn(join(from, orgId, prefix))) {
        if (!/^[0-9a-f]{64}$/.test(hash)) continue;
        if (await copied(join(from, orgId, prefix, hash), join(folder, hash))) count += 1;
      }
    }
  }
  return count;
}

/** The names of an organisation's chunks. */
export async function hashesIn(dir: string, orgId: string): Promise<Set<string>> {
  const hashes = new Set<string>();
  for (const prefix of await namesIn(join(dir, orgId)))
    for (const hash of await namesIn(join(dir, orgId, prefix))) hashes.add(hash);
  return hashes;
}

async function copied(from: string, to: string): Promise<boolean> {
  try {
    // On file systems that can, a copy takes no room of its own.
    await copyFile(from, to, constants.COPYFILE_FICLONE);
    return true;
  } catch (error) {
    return ignoreMissing(error as NodeJS.ErrnoException, false);
  }
}

async function namesIn(dir: string): Promise<string[]> {
  return readdir(dir).catch((error: NodeJS.ErrnoException) => ignoreMissing(error, []));
}

function ignoreMissing<T>(error: NodeJS.ErrnoException, answer: T): T {
  if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return answer;
  throw error;
}
