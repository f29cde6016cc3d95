import { chmodSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';

/**
 * Writes a file that sandboxes may be reading at this moment, and that an earlier start may have left without the right
 * to write. The mode holds whatever the umask is. What is there already stays: a running sandbox may have a mount on it,
 * which a rename would take away.
 */
export function putFile(path: string, content: string | Uint8Array, mode: number): void {
  if (isThere(path, Buffer.from(content), mode)) return;
  const partial = `${path}.${process.pid}`;
  writeFileSync(partial, content);
  chmodSync(partial, mode);
  renameSync(partial, path);
}

function isThere(path: string, content: Buffer, mode: number): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  return found?.isFile() === true && (found.mode & 0o777) === mode && readFileSync(path).equals(content);
}

/** A folder that every user may enter and read, whatever the umask is; folders above that are missing are made. */
export function openFolder(path: string): void {
  mkdirSync(path, { recursive: true });
  chmodSync(path, 0o755);
}
