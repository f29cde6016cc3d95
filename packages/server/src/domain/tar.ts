/** One entry of a tar archive in the pax interchange format (POSIX.1-2001). */
export interface TarEntry {
  /** Bytes of the path; no leading or trailing slash. */
  path: Buffer;
  kind: 'file' | 'directory' | 'symlink' | 'hardlink';
  /** Permission bits. */
  mode: number;
  sizeBytes: number;
  /** Where a link points to; of a hard link the path of an entry before it. */
  target: Buffer;
  mtimeSeconds: number;
}

export const tarBlock = 512;
export const tarEnd = Buffer.alloc(2 * tarBlock);
const typeFlags = { file: '0', directory: '5', symlink: '2', hardlink: '1' } as const;
/** The largest size that eleven octal digits hold. */
const OCTAL_MAX = 0o77777777777;

/** The header blocks of an entry; a file's bytes follow, then `tarPadding`. */
export function tarHeader(entry: TarEntry): Buffer {
  const path = entry.kind === 'directory' ? Buffer.concat([entry.path, Buffer.from('/')]) : entry.path;
  const size = entry.kind === 'file' ? entry.sizeBytes : 0;
  const records: Buffer[] = [];
  if (path.length > 100) records.push(paxRecord('path', path));
  if (entry.target.length > 100) records.push(paxRecord('linkpath', entry.target));
  if (size > OCTAL_MAX) records.push(paxRecord('size', Buffer.from(String(size))));
  const mtime = Math.min(Math.max(0, Math.floor(entry.mtimeSeconds)), OCTAL_MAX);
  const flag = typeFlags[entry.kind];
  const main = block(path, entry.mode, Math.min(size, OCTAL_MAX), mtime, flag, entry.target);
  if (records.length === 0) return main;
  const body = Buffer.concat(records);
  const extended = block(Buffer.from('pax_header'), 0o644, body.length, mtime, 'x', Buffer.alloc(0));
  return Buffer.concat([extended, body, tarPadding(body.length), main]);
}

export function tarPadding(sizeBytes: number): Buffer {
  return Buffer.alloc((tarBlock - (sizeBytes % tarBlock)) % tarBlock);
}

/** `<length> <key>=<value>\n`, where the length counts its own digits. */
function paxRecord(key: string, value: Buffer): Buffer {
  const bare = key.length + value.length + 3;
  let length = bare + String(bare).length;
  if (bare + String(length).length !== length) length = bare + String(length).length;
  return Buffer.concat([Buffer.from(`${length} ${key}=`), value, Buffer.from('\n')]);
}

function block(
  path: Buffer,
  mode: number,
  size: number,
  mtime: number,
  flag: string,
  target: Buffer,
): Buffer {
  const header = Buffer.alloc(tarBlock);
  const octal = (value: number, at: number, width: number): void => {
    header.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at, 'latin1');
  };
  path.copy(header, 0, 0, 100);
  octal(mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(mtime, 136, 12);
  header.write('        ', 148, 'latin1');
  header.write(flag, 156, 'latin1');
  target.copy(header, 157, 0, 100);
  header.write('ustar\x0000', 257, 'latin1');
  let sum = 0;
  for (const byte of header) sum += byte;
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return header;
}
