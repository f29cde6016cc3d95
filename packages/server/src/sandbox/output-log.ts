import { openSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { deed } from '../domain/deeds.ts';

const MAX_BYTES = 1024 * 1024;
const KEPT_BYTES = 256 * 1024;

/** Lies in the run directory, so that it goes when that goes. */
export const logFileIn = (runDir: string): string => join(runDir, 'output.log');

/** Opened for appending, so that a writer goes on at the end after the file was cut. Only the service may open it; without root, which is the sandbox's user too, a program inside can by way of /proc. */
export function openLog(path: string): number {
  return openSync(path, 'a', 0o600);
}

/** Those that are being cut. */
const cutting = new Set<string>();

/**
 * Cuts the head of a log that has grown too large. The sandbox writes on meanwhile, so a few lines may be lost or stand
 * in another order around the cut; a log that a program floods has no better use.
 */
export async function cutLog(path: string): Promise<void> {
  if (cutting.has(path) || sizeOf(path) <= MAX_BYTES) return;
  cutting.add(path);
  try {
    await deed(path, () => cut(path));
  } finally {
    cutting.delete(path);
  }
}

const sizeOf = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0;

async function cut(path: string): Promise<void> {
  const file = await open(path, 'r+');
  try {
    const { size } = await file.stat();
    const tail = Buffer.alloc(KEPT_BYTES);
    const { bytesRead } = await file.read(tail, 0, KEPT_BYTES, Math.max(0, size - KEPT_BYTES));
    await file.truncate(0);
    await file.write(tail, 0, bytesRead, 0);
  } finally {
    await file.close();
  }
}
