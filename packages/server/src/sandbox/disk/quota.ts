import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { deed } from '../../domain/deeds.ts';
import { measure } from './measure.ts';

const MIB = 1024 * 1024;
/** A file system gives about one inode for so many bytes; a volume may not take more files than its share. */
const BYTES_AN_ENTRY = 4096;
const ENTRIES_MIN = 20_000;
/** What an over-full volume may still grow by, so that an agent can work on it and delete. */
const GROWTH_WHEN_FULL_BYTES = 16 * MIB;
const TOLERANCE_BYTES = MIB;

export interface Quota {
  /** Beyond these a sandbox is ended. */
  bytes: number;
  entries: number;
  /** Largest file that may be written (RLIMIT_FSIZE). */
  fileBytes: number;
}

export const foldersOf = (volumeDir: string): string[] => [
  join(volumeDir, 'workspace'),
  join(volumeDir, 'home'),
];

/** Lies beside the sandbox's folders, where the sandbox cannot reach it. */
const markOf = (volumeDir: string): string => join(volumeDir, 'over-limit');

/** Marks on their way to the disk, which the next sandbox of the volume waits for. */
const marking = new Map<string, Promise<void>>();

export function markFull(volumeDir: string): Promise<void> {
  const marked = deed(volumeDir, () => writeFile(markOf(volumeDir), '')).finally(() => {
    if (marking.get(volumeDir) === marked) marking.delete(volumeDir);
  });
  marking.set(volumeDir, marked);
  return marked;
}

/**
 * What a sandbox may write. A volume that was found over its limit is measured first, since the next turn must be able
 * to run there and delete files: it may grow by a little, by less once it is half as large again, and by nothing once
 * it is four times as large, so that repeated turns cannot push it up without end.
 */
export async function quotaFor(volumeDir: string, limitBytes: number): Promise<Quota> {
  const entries = Math.max(ENTRIES_MIN, Math.floor(limitBytes / BYTES_AN_ENTRY));
  // One file may be as large as the whole limit, and the folders around it take some blocks too.
  const whole = { bytes: limitBytes + TOLERANCE_BYTES, entries, fileBytes: limitBytes };
  // Whoever marks it tells of what went wrong.
  await marking.get(volumeDir)?.catch(() => undefined);
  if (!existsSync(markOf(volumeDir))) return whole;
  const { bytes: usedBytes, entries: usedEntries } = await volumeUse(volumeDir);
  if (usedBytes < limitBytes && usedEntries < entries) {
    await deed(volumeDir, () => rm(markOf(volumeDir), { force: true }));
    return whole;
  }
  const growthBytes = growthOf(usedBytes / limitBytes, limitBytes);
  return {
    bytes: Math.max(limitBytes, usedBytes + growthBytes + TOLERANCE_BYTES),
    entries: Math.max(entries, usedEntries + ENTRIES_MIN / 100),
    fileBytes: usedBytes < limitBytes ? limitBytes : Math.floor(growthBytes),
  };
}

export async function volumeUse(volumeDir: string): Promise<{ bytes: number; entries: number }> {
  const folders = foldersOf(volumeDir);
  const [bytes, entries] = await Promise.all([measure(folders, 'bytes'), measure(folders, 'entries')]);
  return { bytes, entries };
}

function growthOf(fullness: number, limitBytes: number): number {
  if (fullness < 1.5) return Math.min(GROWTH_WHEN_FULL_BYTES, limitBytes / 4);
  return fullness < 4 ? TOLERANCE_BYTES : 0;
}
