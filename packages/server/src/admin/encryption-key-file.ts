import { readFileSync, statSync } from 'node:fs';
import type { Stats } from 'node:fs';
import type { KeySource } from '../domain/ports/key-source.ts';
import { createOwnerOnly, writeOwnerOnly } from './durable-file.ts';

/** The message says what is wrong with the file and what to do. */
export class KeyFileError extends Error {}

const textOf = (keys: Buffer[]): string => keys.map((key) => `${key.toString('hex')}\n`).join('');

/** A file of key-encryption keys: 64 hex digits a line, the current key first, readable for its owner only. */
export function keyFile(path: string): KeySource {
  const stat = (): Stats | undefined => statSync(path, { throwIfNoEntry: false });
  return {
    name: path,
    read() {
      const found = stat();
      if (!found) return [];
      if (!found.isFile()) throw new KeyFileError(`${path} must be a file with the encryption key.`);
      if ((found.mode & 0o077) !== 0) {
        throw new KeyFileError(
          `${path} can be read by others, so its key may be known to them. Run: chmod 600 ${path} (and rotate the key).`,
        );
      }
      const lines = readFileSync(path, 'utf8')
        .split(/\r?\n/)
        .filter((line) => line !== '');
      if (lines.length === 0 || !lines.every((line) => /^[0-9a-f]{64}$/i.test(line))) {
        throw new KeyFileError(
          `${path} must hold 64 hex digits a line, nothing else. Restore it from a back-up.`,
        );
      }
      return lines.map((line) => Buffer.from(line, 'hex'));
    },
    stamp() {
      const found = stat();
      return found ? `${found.ino}:${found.size}:${found.mtimeMs}` : '';
    },
    create: (key) => void createOwnerOnly(path, textOf([key])),
    replace: (keys) => writeOwnerOnly(path, textOf(keys)),
  };
}

/** BERTH_ENCRYPTION_KEY first, then whatever a file still holds: its keys open what they once sealed. */
export function keyVariable(hexDigits: string, file: KeySource): KeySource {
  const key = Buffer.from(hexDigits, 'hex');
  return {
    name: 'BERTH_ENCRYPTION_KEY',
    read: () => [key, ...file.read().filter((other) => !other.equals(key))],
    stamp: () => file.stamp(),
    create() {},
    replace: null,
  };
}
