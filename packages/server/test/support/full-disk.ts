import { execFile } from 'node:child_process';
import { closeSync, openSync, writeSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Makes a file that takes all that is left of its disk. False: it could not be made. */
export async function fillDisk(file: string): Promise<boolean> {
  const { bfree, bsize } = await statfs(dirname(file));
  return grow(file, bfree * bsize);
}

/** Makes a file of the size, or of what there is room for. False: it could not be made. */
export async function grow(file: string, bytes: number): Promise<boolean> {
  const isWhole = await allocate(file, bytes);
  if (isWhole) return true;
  let fd: number;
  try {
    fd = openSync(file, 'a');
  } catch {
    return false;
  }
  try {
    for (const piece of [1024 * 1024, 4096]) while (append(fd, piece));
  } finally {
    closeSync(fd);
  }
  return true;
}

function allocate(file: string, bytes: number): Promise<boolean> {
  if (bytes === 0) return Promise.resolve(false);
  return new Promise((resolve) => {
    execFile('fallocate', ['--length', String(bytes), file], (error) => resolve(error === null));
  });
}

function append(fd: number, bytes: number): boolean {
  try {
    return writeSync(fd, Buffer.alloc(bytes, 1)) === bytes;
  } catch {
    return false;
  }
}
