import type { VolumePath } from '../../domain/ports/volume.ts';
import { invalidRequest } from './validate.ts';

const PATH_MAX_BYTES = 4096;
const NAME_MAX_BYTES = 255;
const NAMES_MAX = 256;
const SLASH = 0x2f;

const refuse = (message: string) => invalidRequest([{ path: 'path', message }]);

/**
 * The place that a path of the URL means, as bytes, since a name in a sandbox need not be text. As with `scp`, a path
 * is relative to where the agent works, `/workspace`, unless it begins with a slash. Throws `invalid_request`.
 */
export function readVolumePath(text: string): VolumePath {
  const bytes = decode(text);
  if (bytes.length > PATH_MAX_BYTES) throw refuse(`must have at most ${PATH_MAX_BYTES} bytes`);
  const isAbsolute = bytes[0] === SLASH;
  const names = namesOf(bytes);
  if (names.length > NAMES_MAX) throw refuse(`must have at most ${NAMES_MAX} names`);
  if (!isAbsolute) return { tree: 'workspace', names };
  const [first, second] = names.map(String);
  if (first === 'workspace') return { tree: 'workspace', names: names.slice(1) };
  if (first === 'home' && second === 'agent') return { tree: 'home', names: names.slice(2) };
  throw refuse('must be under /workspace or /home/agent; nothing else of a sandbox is kept');
}

/** Whether the URL names a folder, as by its slash at the end. */
export function endsInSlash(text: string): boolean {
  return text === '' || decode(text).at(-1) === SLASH;
}

/** The path of an entry as a URL takes it: each byte that is not plain is escaped. */
export function volumeHref(path: VolumePath): string {
  const prefix = path.tree === 'home' ? ['', 'home', 'agent'] : [];
  return [...prefix, ...path.names.map(encodeName)].join('/');
}

export function encodeName(name: Buffer): string {
  let text = '';
  for (const byte of name) {
    const character = String.fromCharCode(byte);
    text += /[A-Za-z0-9._~-]/.test(character)
      ? character
      : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return text;
}

function namesOf(bytes: Buffer): Buffer[] {
  if (bytes.includes(0)) throw refuse('must not contain U+0000');
  const names: Buffer[] = [];
  for (let at = 0; at <= bytes.length;) {
    const slash = bytes.indexOf(SLASH, at);
    const end = slash === -1 ? bytes.length : slash;
    const name = bytes.subarray(at, end);
    at = end + 1;
    if (name.length === 0) continue;
    if (name.equals(Buffer.from('.')) || name.equals(Buffer.from('..')))
      throw refuse('must not have "." or ".." as a name');
    if (name.length > NAME_MAX_BYTES) throw refuse(`a name may have at most ${NAME_MAX_BYTES} bytes`);
    names.push(name);
  }
  return names;
}

/** Percent-decoding to bytes (RFC 3986, section 2.1), whatever text they are. */
function decode(text: string): Buffer {
  if (/%(?![0-9A-Fa-f]{2})/.test(text)) throw refuse('has a "%" that is not followed by two hex digits');
  const raw = Buffer.from(text, 'utf8').toString('latin1');
  return Buffer.from(
    raw.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
    'latin1',
  );
}
