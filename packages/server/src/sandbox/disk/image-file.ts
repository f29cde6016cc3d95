import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readSync, statfsSync, statSync } from 'node:fs';
import { mkdir, open, rename, rm, truncate } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { deed } from '../../domain/deeds.ts';
import type { Log } from '../../domain/log.ts';
import { started } from '../started.ts';
import type { SandboxUser } from '../volume.ts';

const MIB = 1024 * 1024;
const BLOCK_BYTES = 4096;
const JOURNAL_MIB = 4;
const TOLD_CHARS = 1_000;
const TOOL_TIMEOUT_MS = 10 * 60_000;
/** Another process, of a service that was killed perhaps, may still be looking through the same image. */
const LOCK_SECONDS = 120;
/** Not one of the programs that are run under the lock has this code. */
const LOCKED_CODE = 75;
/** What e2fsck(8) gives when it found nothing, or has mended everything. */
const MENDED_CODES = [0, 1];
/** What it gives, as one of its bits, when it wants to be told what to do. */
const UNDECIDED = 4;

/** Never taken from the host for images, so that the service itself goes on. */
const HOST_FREE_BYTES = 64 * MIB;

/** As many files as the watch would allow; see quota.ts. */
export const entriesOf = (limitBytes: number): number => Math.max(20_000, Math.floor(limitBytes / 4096));

/** Kept back for the next start of a sandbox whose disk is full, so that it can work and delete. */
export const reserveBytes = (limitBytes: number): number => Math.min(16 * MIB, Math.floor(limitBytes / 8));
/** It lies beside the sandbox's folders, out of its reach. */
export const reserveOf = (folder: string): string => join(folder, 'reserve');
export const addReserve = (folder: string, limitBytes: number): Promise<string> =>
  tool('fallocate', ['--length', String(reserveBytes(limitBytes)), reserveOf(folder)]);

/** The size of an image whose files may take `limitBytes`: what the file system takes for itself comes on top. */
export function imageBytesFor(limitBytes: number): number {
  const own = entriesOf(limitBytes) * 256 + limitBytes / 64 + (JOURNAL_MIB + 2) * MIB;
  return Math.ceil((limitBytes + reserveBytes(limitBytes) + own) / MIB) * MIB;
}

/** Makes an ext4 image, whole or not at all. It gets its room when it is mounted. */
export async function makeImage(image: string, limitBytes: number, user: SandboxUser): Promise<void> {
  const owner = user ? [`root_owner=${user.uid}:${user.gid}`] : [];
  // The file is new, so every byte of it is zero already: neither this nor the kernel later has to write zeros to it.
  const extended = [...owner, 'nodiscard', 'lazy_itable_init=1', 'assume_storage_prezeroed=1'];
  await replacing(image, async (fresh) => {
    await (await open(fresh, 'wx', 0o600)).close();
    await truncate(fresh, imageBytesFor(limitBytes));
    await tool('mkfs.ext4', [
      ...['-q', '-F', '-m', '0', '-b', String(BLOCK_BYTES), '-N', String(entriesOf(limitBytes))],
      // After an error in the file system nothing more is written: the next mount mends it.
      ...['-J', `size=${JOURNAL_MIB}`, '-e', 'remount-ro', '-E', extended.join(','), fresh],
    ]);
  });
}

/**
 * Gives an image that is not mounted the size for another limit. It works on a copy, so that a crash in between leaves
 * the image as it was. Rejects when what is in it does not fit.
 */
export function resizeImage(image: string, limitBytes: number): Promise<void> {
  const bytes = imageBytesFor(limitBytes);
  return replacing(image, async (fresh) => {
    await tool('cp', ['--sparse=always', '--', image, fresh]);
    await tool('e2fsck', ['-f', '-p', fresh], MENDED_CODES);
    // For resize2fs the file must be large enough before, and may be cut only after.
    if (bytes > imageSize(image)) await deed(image, () => truncate(fresh, bytes));
    await tool('resize2fs', [fresh, `${bytes / BLOCK_BYTES}`]);
    await deed(image, () => truncate(fresh, bytes));
  });
}

/**
 * Mends what a crash of the host, or a full disk of it, left of an image that is not mounted. Where that takes a decision, an
 * agent that never starts again would be the worst one: it is mended as far as it goes, with what has lost its name in
 * `lost+found` beside the agent's folders, and the log of the service says so.
 */
export async function checkImage(image: string, log: Log): Promise<void> {
  try {
    await tool('e2fsck', ['-p', image], MENDED_CODES, image);
  } catch (error) {
    if (!(error instanceof ToolError) || error.code === null || (error.code & UNDECIDED) === 0) throw error;
    const told = await tool('e2fsck', ['-f', '-y', image], MENDED_CODES, image);
    log.error('A disk was damaged, and is mended as far as it can be; files may be missing.', {
      image,
      told: told.slice(0, TOLD_CHARS),
    });
  }
}

/**
 * Takes the image's whole size from the disk of the host, at once: a program in the sandbox is told that its write is
 * done long before it reaches the host, which must then have room for it (decision 0131). What is in it stays. Rejects when
 * the host has not so much room.
 */
export async function allocateImage(image: string, log: Log): Promise<void> {
  const { size, blocks } = statSync(image);
  const lacking = size - blocks * 512;
  if (lacking <= 0) return;
  const { bavail, bsize } = statfsSync(image);
  // What fails half-way would keep all the room that there was.
  if (bavail * bsize < lacking + HOST_FREE_BYTES)
    throw new Error(
      `No space left on device: the disk of an agent needs ${Math.ceil(lacking / MIB)} MiB more, and ${HOST_FREE_BYTES / MIB} MiB stay free.`,
    );
  try {
    await tool('fallocate', ['--length', String(size), image]);
  } catch (error) {
    if (!(error instanceof ToolError) || !error.message.includes('not supported')) throw error;
    log.warn(
      'The file system of the host cannot set room aside: what agents write may be lost when it is full.',
      {
        image,
      },
    );
  }
}

/** The size of the file system in it (ext4: s_blocks_count_lo and s_log_block_size of the superblock). */
export function imageSize(image: string): number {
  const fd = openSync(image, 'r');
  try {
    const block = Buffer.alloc(64);
    readSync(fd, block, 0, block.length, 1024);
    return block.readUInt32LE(4) * 2 ** (10 + block.readUInt32LE(24));
  } finally {
    closeSync(fd);
  }
}

/** Closed for others, but not what it lies in: the data directory may not be there yet, and other users go through it. */
export async function makeImagesDir(imagesDir: string): Promise<void> {
  await mkdir(dirname(imagesDir), { recursive: true, mode: 0o711 });
  await mkdir(imagesDir, { recursive: true, mode: 0o700 });
}

/** Named by its maker: `berth doctor` and the service may be at work side by side. */
const unfinished = (image: string): string => `${image}.new-${process.pid}`;
/** The same: what a trial makes begins with this, */
export const trialOf = (): string => `trial-${process.pid}`;
/** and what is made before its agent with this, by its number. Only the service makes such, of which there is one. */
export const blankOf = (count: number): string => `blank-${process.pid}-${count}`;
export const isBlank = (name: string): boolean => /^blank-\d+(-\d+)?(\.img(\.lock)?)?$/.test(name);
/** The process that made an unfinished image, or anything of a trial, by the name; null when it is no such thing. */
export const makerOf = (name: string): number | null =>
  Number(/\.new-(\d+)$/.exec(name)?.[1] ?? /^trial-(\d+)(-[\da-f-]+)?(\.img(\.lock)?)?$/.exec(name)?.[1]) ||
  null;
export const lockOf = (image: string): string => `${image}.lock`;

async function replacing(image: string, make: (fresh: string) => Promise<void>): Promise<void> {
  const fresh = unfinished(image);
  await deed(image, () => rm(fresh, { force: true }));
  try {
    await make(fresh);
    await deed(image, () => sync(fresh));
    // The former one gives back all its blocks.
    await deed(image, () => rename(fresh, image));
  } catch (error) {
    await deed(image, () => rm(fresh, { force: true }));
    throw error;
  }
}

async function sync(path: string): Promise<void> {
  const file = await open(path, 'r+');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

class ToolError extends Error {
  readonly code: number | null;

  constructor(message: string, code: number | null) {
    super(message);
    this.code = code;
  }
}

/**
 * Runs a program of the host and resolves with its output. With `locked`, only one such program at a time has that image in
 * its hands, also when the service that started it is gone.
 */
export async function tool(
  name: string,
  args: string[],
  codes: number[] = [0],
  locked: string | null = null,
): Promise<string> {
  const command = [name, ...args];
  if (locked !== null)
    command.unshift(
      ...['flock', '--conflict-exit-code', String(LOCKED_CODE), '--wait', String(LOCK_SECONDS)],
      lockOf(locked),
    );
  const child = started(
    spawn(command[0]!, command.slice(1), {
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: TOOL_TIMEOUT_MS,
    }),
  );
  let output = '';
  const take = (chunk: Buffer) => void (output.length < 4096 && (output += chunk.toString()));
  child.stdout.on('data', take);
  child.stderr.on('data', take);
  const failed = once(child, 'error').then(([error]) => Promise.reject(error as Error));
  const [code] = (await Promise.race([once(child, 'close'), failed])) as [number | null];
  if (locked !== null && code === LOCKED_CODE)
    throw new ToolError(`${name} was not run: another process is at work on ${locked}.`, null);
  if (code === null || !codes.includes(code))
    throw new ToolError(`${name} failed (${code}): ${output.trim().slice(0, 500)}`, code);
  return output;
}
