import { closeSync, ftruncateSync, openSync, readSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';

const MAX_BYTES = 1024 * 1024;
const KEPT_BYTES = 256 * 1024;

/** Lies in the run directory, so that it goes when that goes. */
export const logFileIn = (runDir: string): string => join(runDir, 'output.log');

/** Opened for appending, so that a writer goes on at the end after the file was cut. Only the service may open it; without root, which is the sandbox's user too, a program inside can by way of /proc. */
export function openLog(path: string): number {
  return openSync(path, 'a', 0o600);
}

/**
 * Cuts the head of a log that has grown too large. The sandbox writes on meanwhile, so a few lines may be lost or stand
 * in another order around the cut; a log that a program floods has no better use.
 */
export function cutLog(path: string): void {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size <= MAX_BYTES) return;
  const fd = openSync(path, 'r+');
  try {
    const tail = Buffer.alloc(KEPT_BYTES);
    const read = readSync(fd, tail, 0, KEPT_BYTES, size - KEPT_BYTES);
    ftruncateSync(fd, 0);
    writeSync(fd, tail.subarray(0, read), 0, read, 0);
  } finally {
    closeSync(fd);
  }
}
