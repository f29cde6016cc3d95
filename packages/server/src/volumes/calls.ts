import {
  close as closeCallback,
  closeSync,
  fchmod as fchmodCallback,
  fchown as fchownCallback,
  fdatasync as fdatasyncCallback,
  fstatSync,
  futimes as futimesCallback,
  open as openCallback,
  read as readCallback,
  write as writeCallback,
} from 'node:fs';
import { promisify } from 'node:util';
import { deed } from '../domain/deeds.ts';

/** Calls by descriptors that leave the event loop to others; they are made in deeds (`domain/deeds.ts`). */
export const open = promisify(openCallback);
export const read = promisify(readCallback);
export const write = promisify(writeCallback);
export const close = promisify(closeCallback);
export const fchmod = promisify(fchmodCallback);
export const fchown = promisify(fchownCallback);
export const fdatasync = promisify(fdatasyncCallback);
export const futimes = promisify(futimesCallback);

/**
 * Closes what was open for a while, outside of a deed. Whoever closes the last descriptor of what has no name any more
 * waits until all its blocks are given back.
 */
export function letGo(volumeDir: string, fd: number): Promise<void> {
  if (fstatSync(fd).nlink === 0) return deed(volumeDir, () => close(fd));
  closeSync(fd);
  return done;
}

const done = Promise.resolve();
