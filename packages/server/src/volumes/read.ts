import { closeSync, fstatSync } from 'node:fs';
import { Readable } from 'node:stream';
import { deed } from '../domain/deeds.ts';
import { DomainError } from '../domain/errors.ts';
import type { OpenVolumeFile, VolumeEntry, VolumePath } from '../domain/ports/volume.ts';
import { letGo, read } from './calls.ts';
import { smallestNames } from './names.ts';
import { turn } from './turns.ts';
import { conflict, entryOf, openEntry, openFolder, openToRead, step, targetOf } from './walk.ts';

export const PIECE_BYTES = 256 * 1024;

export class ShorterError extends DomainError {
  constructor() {
    super('conflict', 'The file became shorter while it was read; try again.');
  }
}

export function statEntry(volumeDir: string, path: VolumePath): VolumeEntry {
  const { fd, stats } = openEntry(volumeDir, path);
  closeSync(fd);
  const entry = entryOf(path.names.at(-1) ?? Buffer.from(path.tree), stats, null);
  return entry.type === 'link' ? { ...entry, target: linkTarget(volumeDir, path) } : entry;
}

function linkTarget(volumeDir: string, path: VolumePath): Buffer | null {
  const folderFd = openFolder(volumeDir, { ...path, names: path.names.slice(0, -1) });
  try {
    return targetOf(folderFd, path.names.at(-1)!);
  } finally {
    closeSync(folderFd);
  }
}

export function openFile(volumeDir: string, path: VolumePath): OpenVolumeFile {
  const { fd: lookFd, stats } = openEntry(volumeDir, path);
  let fd: number;
  try {
    requireFile(entryOf(path.names.at(-1) ?? Buffer.from(path.tree), stats, null));
    fd = openToRead(lookFd);
  } finally {
    closeSync(lookFd);
  }
  const entry = entryOf(path.names.at(-1)!, fstatSync(fd, { bigint: true }), null);
  let isOpen = true;
  const close = (): void => {
    if (isOpen) void letGo(volumeDir, fd);
    isOpen = false;
  };
  return {
    entry,
    close,
    read(start, end) {
      const options = { objectMode: false, highWaterMark: PIECE_BYTES };
      // After the read that may be under way: a number that was closed may belong to another file.
      return Readable.from(pieces(volumeDir, fd, start, end), options).once('close', close);
    },
  };
}

export function requireFile(entry: VolumeEntry): void {
  switch (entry.type) {
    case 'file':
      return;
    case 'folder':
      throw conflict('This is a folder.');
    case 'link':
      throw conflict('This is a symbolic link, and links are not followed here; ask for what it leads to.');
    case 'other':
      throw conflict('This is a pipe, a socket or a device, and has no content to read.');
  }
}

/** What is appended meanwhile is left out; what was cut off makes the stream fail, since its length is promised. */
export async function* pieces(
  volumeDir: string,
  fd: number,
  start: number,
  end: number,
): AsyncGenerator<Buffer> {
  for (let at = start; at < end;) {
    const length = Math.min(PIECE_BYTES, end - at);
    const piece = Buffer.allocUnsafe(length);
    const { bytesRead } = await deed(volumeDir, () => read(fd, piece, 0, length, at));
    if (bytesRead === 0) throw new ShorterError();
    yield piece.subarray(0, bytesRead);
    at += bytesRead;
  }
}

/** `limit` entries of a folder by name, those after `after`. */
export async function listFolder(
  volumeDir: string,
  path: VolumePath,
  page: { after: Buffer | null; limit: number },
): Promise<VolumeEntry[]> {
  const { fd, stats } = openEntry(volumeDir, path);
  try {
    if (!stats.isDirectory()) throw conflict('This is not a folder, so there is nothing to list.');
    const entries: VolumeEntry[] = [];
    for (const name of await smallestNames(volumeDir, fd, page.after, page.limit)) {
      await turn();
      const entry = look(fd, name);
      if (entry) entries.push(entry);
    }
    return entries;
  } finally {
    await letGo(volumeDir, fd);
  }
}

/** Null: it went away meanwhile. */
function look(folderFd: number, name: Buffer): VolumeEntry | null {
  let fd: number;
  try {
    fd = step(folderFd, name);
  } catch {
    return null;
  }
  try {
    return entryOf(name, fstatSync(fd, { bigint: true }), folderFd);
  } finally {
    closeSync(fd);
  }
}
