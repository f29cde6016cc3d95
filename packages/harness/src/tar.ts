import { closeSync, openSync, readSync } from 'node:fs';

/** One entry of a tar archive; `offset` and `size` say where its content lies in the file. */
export interface TarEntry {
  path: string;
  type: 'file' | 'directory' | 'symlink' | 'other';
  isExecutable: boolean;
  /** Of a symbolic link. */
  target: string;
  offset: number;
  size: number;
}

export interface Tar {
  /** The commit that `git archive` writes as a comment of the whole archive; null when there is none. */
  commit: string | null;
  entries: TarEntry[];
  /** Reads a part of an entry's content. */
  read: (entry: TarEntry, from: number, target: Buffer) => number;
  close: () => void;
}

export class TarError extends Error {}

const blockBytes = 512;
/** Records of names and links; nothing of them is near it in honest archives. */
const maxRecordBytes = 1024 * 1024;

/** POSIX.1-2001 pax archives with the GNU long-name records, as `git archive` writes them. */
export function openTar(path: string): Tar {
  const descriptor = openSync(path, 'r');
  try {
    const { commit, entries } = readEntries(descriptor);
    return {
      commit,
      entries,
      read: (entry, from, target) => {
        const bytes = Math.min(target.length, entry.size - from);
        if (bytes <= 0) return 0;
        const got = readSync(descriptor, target, 0, bytes, entry.offset + from);
        if (got === 0) throw new TarError('The archive ends in the middle of a file.');
        return got;
      },
      close: () => closeSync(descriptor),
    };
  } catch (error) {
    closeSync(descriptor);
    throw error;
  }
}

function readEntries(descriptor: number): { commit: string | null; entries: TarEntry[] } {
  const entries: TarEntry[] = [];
  const header = Buffer.alloc(blockBytes);
  let commit: string | null = null;
  let next: Record<string, string> = {};
  for (let position = 0; ;) {
    const got = readSync(descriptor, header, 0, blockBytes, position);
    if (got < blockBytes) throw new TarError('The archive ends without its closing block.');
    if (header.every((byte) => byte === 0)) return { commit, entries };
    checkSum(header);
    const type = String.fromCharCode(header[156] ?? 0);
    const size = next['size'] === undefined ? octal(header, 124, 12) : Number(next['size']);
    if (!Number.isSafeInteger(size) || size < 0)
      throw new TarError('An entry of the archive has no valid size.');
    const offset = position + blockBytes;
    position = offset + Math.ceil(size / blockBytes) * blockBytes;
    if (type === 'g') commit = paxRecords(record(descriptor, offset, size))['comment'] ?? commit;
    else if (type === 'x') next = { ...next, ...paxRecords(record(descriptor, offset, size)) };
    else if (type === 'L') next['path'] = untilNul(record(descriptor, offset, size));
    else if (type === 'K') next['linkpath'] = untilNul(record(descriptor, offset, size));
    else {
      entries.push(entryOf(header, type, next, offset, size));
      next = {};
    }
  }
}

function entryOf(
  header: Buffer,
  type: string,
  pax: Record<string, string>,
  offset: number,
  size: number,
): TarEntry {
  const prefix = untilNul(header.subarray(345, 500));
  const name = untilNul(header.subarray(0, 100));
  const kinds: Record<string, TarEntry['type']> = {
    '0': 'file',
    '\0': 'file',
    '5': 'directory',
    '2': 'symlink',
  };
  return {
    path: pax['path'] ?? (prefix === '' ? name : `${prefix}/${name}`),
    type: kinds[type] ?? 'other',
    isExecutable: (octal(header, 100, 8) & 0o100) !== 0,
    target: pax['linkpath'] ?? untilNul(header.subarray(157, 257)),
    offset,
    size,
  };
}

/** Records are `<length> <key>=<value>\n`, the length in decimal and of the whole record (POSIX pax, "Extended Header"). */
function paxRecords(bytes: Buffer): Record<string, string> {
  const records: Record<string, string> = {};
  for (let from = 0; from < bytes.length;) {
    const space = bytes.indexOf(32, from);
    const length = Number(bytes.toString('latin1', from, space));
    if (space < 0 || !Number.isInteger(length) || length < 5 || from + length > bytes.length) {
      throw new TarError('An extended header of the archive is broken.');
    }
    const text = bytes.toString('utf8', space + 1, from + length - 1);
    const equals = text.indexOf('=');
    records[text.slice(0, equals)] = text.slice(equals + 1);
    from += length;
  }
  return records;
}

function record(descriptor: number, offset: number, size: number): Buffer {
  if (size > maxRecordBytes) throw new TarError('A header of the archive is too long.');
  const bytes = Buffer.alloc(size);
  if (readSync(descriptor, bytes, 0, size, offset) < size)
    throw new TarError('The archive ends in a header.');
  return bytes;
}

function checkSum(header: Buffer): void {
  let sum = 0;
  // The field itself counts as eight spaces.
  for (let index = 0; index < blockBytes; index++)
    sum += index >= 148 && index < 156 ? 32 : (header[index] ?? 0);
  if (sum !== octal(header, 148, 8)) throw new TarError('A header of the archive has a wrong checksum.');
}

function octal(header: Buffer, from: number, length: number): number {
  // The high bit says that a large number follows in binary.
  if ((header[from] ?? 0) & 0x80) return Number(header.readBigUInt64BE(from + length - 8));
  return Number.parseInt(header.toString('latin1', from, from + length).replace(/[\0 ]+/g, '') || '0', 8);
}

function untilNul(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString('utf8', 0, end < 0 ? bytes.length : end);
}
