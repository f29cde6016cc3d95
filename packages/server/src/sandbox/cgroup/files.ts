import { mkdirSync, readdirSync, readFileSync, readSync, rmdirSync, writeFileSync } from 'node:fs';

/** Content of a cgroup file, or null when there is none (the group is gone, or the kernel does not know the file). */
export function readText(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}

/** The number of a line `<key> <number>`, or of a file that holds nothing else when no key is given. */
export function readNumber(path: string, key?: string): number | null {
  const text = readText(path);
  if (text === null) return null;
  if (key === undefined) return toNumber(text.trim());
  for (const line of text.split('\n')) {
    if (line.startsWith(`${key} `)) return toNumber(line.slice(key.length + 1));
  }
  return null;
}

const digits = Buffer.alloc(32);

/** The number that is all of an open file, as it is now; throws when the file is gone. */
export function readOpenNumber(file: number): number | null {
  const bytes = readSync(file, digits, 0, digits.length, 0);
  return toNumber(digits.toString('latin1', 0, bytes).trim());
}

export function readPids(group: string): number[] {
  const text = readText(`${group}/cgroup.procs`) ?? '';
  return text.split('\n').filter(Boolean).map(Number);
}

export function tryWrite(path: string, value: string): boolean {
  try {
    writeFileSync(path, value);
    return true;
  } catch {
    return false;
  }
}

/** Makes the folder; whether it is there afterwards. */
export function tryMakeFolder(path: string): boolean {
  try {
    mkdirSync(path, { recursive: true });
    return true;
  } catch {
    return false;
  }
}

export function tryRemoveFolder(path: string): void {
  try {
    rmdirSync(path);
  } catch {
    // It is not empty: another process of this installation still uses it.
  }
}

export function listFolders(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? [entry.name] : [],
    );
  } catch {
    return [];
  }
}

function toNumber(text: string): number | null {
  const value = Number(text);
  return text === '' || !Number.isFinite(value) ? null : value;
}
