import { readSync } from 'node:fs';

export interface LaunchData {
  command: string[];
  env: Record<string, string>;
}

const newline = 10;
/** More than any environment that a program can be given. */
const maxBytes = 4 * 1024 * 1024;

/**
 * What a sandbox that waited for its agent is told by its host: a line with the number of bytes after it and the number of
 * arguments, then arguments and variables, separated by NUL. Blocks until it is there. Null: the input ended before.
 */
export function readLaunchData(descriptor: number): LaunchData | null {
  const head = readHead(descriptor);
  const [bytes = NaN, count = NaN] = (head ?? '').split(' ').map(Number);
  if (!(bytes >= 0 && bytes <= maxBytes) || !(count >= 0)) return null;
  const body = Buffer.alloc(bytes);
  for (let got = 0; got < bytes;) {
    const read = readSync(descriptor, body, got, bytes - got, null);
    if (read === 0) return null;
    got += read;
  }
  const fields = bytes === 0 ? [] : body.toString().split('\0');
  const variables = fields.slice(count).map((field): [string, string] => {
    const equals = field.indexOf('=');
    return [field.slice(0, equals), field.slice(equals + 1)];
  });
  return { command: fields.slice(0, count), env: Object.fromEntries(variables) };
}

/** Byte by byte, since what follows belongs to somebody else. */
function readHead(descriptor: number): string | null {
  const byte = Buffer.alloc(1);
  let head = '';
  while (head.length < 32) {
    if (readSync(descriptor, byte, 0, 1, null) === 0) return null;
    if (byte[0] === newline) return head;
    head += byte.toString('latin1');
  }
  return null;
}
