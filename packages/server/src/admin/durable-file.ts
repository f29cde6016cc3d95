import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { dirname } from 'node:path';

/** Writes a file that only its owner may read, whole or not at all, and on the disk when it returns. */
export function writeOwnerOnly(path: string, text: string): void {
  place(path, text, (temporary) => renameSync(temporary, path));
}

/** The same, unless the file exists: then it stays as it is. Answers whether it was made. */
export function createOwnerOnly(path: string, text: string): boolean {
  return place(path, text, (temporary) => {
    try {
      linkSync(temporary, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw error;
    }
    return true;
  });
}

function place<T>(path: string, text: string, move: (temporary: string) => T): T {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    const file = openSync(temporary, 'wx', 0o600);
    try {
      writeSync(file, text);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    const result = move(temporary);
    syncDirectory(dirname(path));
    return result;
  } finally {
    rmSync(temporary, { force: true });
  }
}

/** A name is only on the disk once its directory is. */
function syncDirectory(path: string): void {
  const directory = openSync(path, 'r');
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}
