import { DomainError } from '../domain/errors.ts';
import type { TarEntry } from '../domain/tar.ts';
import { tarBlock } from '../domain/tar.ts';
import { type Bytes, EndError } from './bytes.ts';

export type ReadTarEntry = Omit<TarEntry, 'path' | 'target'> & { names: Buffer[]; target: Buffer };

const PATH_MAX_BYTES = 4096;
const NAME_MAX_BYTES = 255;
const EXTENDED_MAX_BYTES = 64 * 1024;

export const badArchive = (message: string) =>
  new DomainError('invalid_request', `body: ${message}`, { details: [{ path: 'body', message }] });

interface Extended {
  path?: Buffer;
  target?: Buffer;
  size?: number;
  mtime?: number;
}

/**
 * The entries of a tar archive (ustar, pax, and GNU's long names). The content of a file must be taken from `bytes`
 * with its padding before the next entry is asked for. Null at the end. Nothing of it is trusted: throws
 * `invalid_request` for what is no archive, or holds what a sandbox may not be given.
 */
export async function nextEntry(bytes: Bytes): Promise<ReadTarEntry | null> {
  const extended: Extended = {};
  for (;;) {
    const block = await bytes.take(tarBlock);
    if (block === null || block.every((byte) => byte === 0)) return null;
    checkSum(block);
    const size = number(block, 124, 12);
    const flag = String.fromCharCode(block[156]!);
    switch (flag) {
      case 'x':
        readRecords(await extension(bytes, size), extended);
        continue;
      case 'g':
        await extension(bytes, size);
        continue;
      case 'L':
        extended.path = text(await extension(bytes, size));
        continue;
      case 'K':
        extended.target = text(await extension(bytes, size));
        continue;
      default:
        return entryOf(block, flag, extended, size);
    }
  }
}

function entryOf(block: Buffer, flag: string, extended: Extended, size: number): ReadTarEntry {
  const raw = extended.path ?? ustarPath(block);
  const endsInSlash = raw.at(-1) === 0x2f;
  const kind = kindOf(flag, endsInSlash);
  const names = namesOf(raw);
  const target = extended.target ?? text(block.subarray(157, 257));
  if (target.length > PATH_MAX_BYTES || target.includes(0))
    throw badArchive('a link in it leads to what is no path');
  if (kind === 'symlink' && target.length === 0) throw badArchive('a link in it leads nowhere');
  return {
    names,
    kind,
    mode: number(block, 100, 8) & 0o777,
    sizeBytes: kind === 'file' ? (extended.size ?? size) : 0,
    mtimeSeconds: extended.mtime ?? number(block, 136, 12),
    target,
  };
}

function kindOf(flag: string, endsInSlash: boolean): TarEntry['kind'] {
  switch (flag) {
    case '0':
    case '\0':
    case '7':
      // Very old archives mark a folder by nothing but the slash.
      return endsInSlash ? 'directory' : 'file';
    case '1':
      return 'hardlink';
    case '2':
      return 'symlink';
    case '5':
      return 'directory';
    default:
      throw badArchive('it may hold only files, folders and links, no devices, pipes or sparse files');
  }
}

/** Empty: the folder that the archive is of. */
export function namesOf(path: Buffer): Buffer[] {
  if (path.length > PATH_MAX_BYTES) throw badArchive(`a path in it has more than ${PATH_MAX_BYTES} bytes`);
  if (path[0] === 0x2f) throw badArchive('a path in it is absolute');
  if (path.includes(0)) throw badArchive('a path in it holds a NUL');
  const names: Buffer[] = [];
  for (let at = 0; at <= path.length;) {
    const slash = path.indexOf(0x2f, at);
    const end = slash === -1 ? path.length : slash;
    const name = path.subarray(at, end);
    at = end + 1;
    if (name.length === 0 || (name.length === 1 && name[0] === 0x2e)) continue;
    if (name.length === 2 && name[0] === 0x2e && name[1] === 0x2e) throw badArchive('a path in it has ".."');
    if (name.length > NAME_MAX_BYTES) throw badArchive(`a name in it has more than ${NAME_MAX_BYTES} bytes`);
    names.push(Buffer.from(name));
  }
  return names;
}

function ustarPath(block: Buffer): Buffer {
  const name = text(block.subarray(0, 100));
  const isUstar = block.toString('latin1', 257, 262) === 'ustar';
  // GNU's own format has other things where ustar has the prefix.
  const isGnu = block[262] === 0x20;
  const prefix = isUstar && !isGnu ? text(block.subarray(345, 500)) : Buffer.alloc(0);
  return prefix.length === 0 ? Buffer.from(name) : Buffer.concat([prefix, Buffer.from('/'), name]);
}

function text(field: Buffer): Buffer {
  const end = field.indexOf(0);
  return Buffer.from(end === -1 ? field : field.subarray(0, end));
}

/** Octal digits, or GNU's base 256 for what they cannot hold. */
function number(block: Buffer, at: number, width: number): number {
  const field = block.subarray(at, at + width);
  if (field[0]! & 0x80) {
    let value = BigInt(field[0]! & 0x7f);
    for (const byte of field.subarray(1)) value = (value << 8n) | BigInt(byte);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw badArchive('a size in it is no size');
    return Number(value);
  }
  const digits = text(field).toString('latin1').trim();
  if (digits === '') return 0;
  if (!/^[0-7]+$/.test(digits)) throw badArchive('it is no tar archive, or is damaged');
  return Number.parseInt(digits, 8);
}

function checkSum(block: Buffer): void {
  let sum = 8 * 0x20;
  for (let at = 0; at < tarBlock; at += 1) if (at < 148 || at >= 156) sum += block[at]!;
  if (number(block, 148, 8) !== sum) throw badArchive('it is no tar archive, or is damaged');
}

async function extension(bytes: Bytes, size: number): Promise<Buffer> {
  if (size > EXTENDED_MAX_BYTES) throw badArchive(`a header in it has more than ${EXTENDED_MAX_BYTES} bytes`);
  if (size === 0) return Buffer.alloc(0);
  const padded = Math.ceil(size / tarBlock) * tarBlock;
  const block = await bytes.take(padded);
  if (!block) throw new EndError();
  return block.subarray(0, size);
}

/** Records of a pax header, `<length> <key>=<value>\n`. Others than these change nothing that is kept. */
function readRecords(body: Buffer, into: Extended): void {
  for (let at = 0; at < body.length;) {
    const space = body.indexOf(0x20, at);
    const digits = space === -1 ? '' : body.toString('latin1', at, space);
    const length = /^\d{1,6}$/.test(digits) ? Number(digits) : 0;
    const end = at + length;
    const equals = body.indexOf(0x3d, space);
    const isWhole =
      length > 0 && end <= body.length && body[end - 1] === 0x0a && equals > space && equals < end;
    if (!isWhole) throw badArchive('a header in it is damaged');
    const value = body.subarray(equals + 1, end - 1);
    take(body.toString('latin1', space + 1, equals), value, into);
    at = end;
  }
}

function take(key: string, value: Buffer, into: Extended): void {
  if (key.startsWith('GNU.sparse')) throw badArchive('it may hold no sparse files');
  if (key === 'path') into.path = Buffer.from(value);
  else if (key === 'linkpath') into.target = Buffer.from(value);
  else if (key === 'mtime') into.mtime = Math.max(0, Math.floor(Number(value.toString('latin1')) || 0));
  else if (key === 'size') {
    const digits = value.toString('latin1');
    if (!/^\d{1,15}$/.test(digits)) throw badArchive('a size in it is no size');
    into.size = Number(digits);
  }
}
