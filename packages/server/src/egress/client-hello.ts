/** What the first bytes of a tunnel are. */
export type FirstBytes =
  /** Not decided yet; there must be more. */
  | { kind: 'more' }
  | { kind: 'other' }
  /** `serverName` in lower case; null when there is none. `hidesName`: it has an Encrypted ClientHello. */
  | { kind: 'hello'; serverName: string | null; hidesName: boolean }
  /** Begins like TLS and is no ClientHello that could be read. */
  | { kind: 'broken' };

const handshake = 22;
const clientHello = 1;
const recordHead = 5;
const recordMax = 1 << 14;
/** More than the largest ClientHello in use, post-quantum key shares included. */
const helloMax = 32 * 1024;
/** Far more than anybody needs; each costs work whenever more comes. */
const maxRecords = 64;
/** RFC 6066, section 3. */
const serverNameExtension = 0;
/** RFC 9849, section 5. */
const encryptedHelloExtension = 0xfe0d;

const broken: FirstBytes = { kind: 'broken' };
const more: FirstBytes = { kind: 'more' };

/**
 * Reads the server name of a TLS ClientHello (RFC 8446, section 4.1.2), which may be cut into several records and
 * several reads. Everything is checked against the lengths that are told. What follows the message is not looked at.
 */
export function readFirstBytes(bytes: Buffer): FirstBytes {
  if (bytes.length > 0 && bytes[0] !== handshake) return { kind: 'other' };
  const parts: Buffer[] = [];
  let length = 0;
  for (let at = 0; at < bytes.length;) {
    const head = bytes.subarray(at, at + recordHead);
    if (head[0] !== handshake || (head.length > 1 && head[1] !== 3)) return broken;
    if (head.length < recordHead) return more;
    const size = head.readUInt16BE(3);
    if (size === 0 || size > recordMax || parts.length === maxRecords) return broken;
    at += recordHead + size;
    const part = bytes.subarray(at - size, at);
    parts.push(part);
    length += part.length;
    const end = messageEnd(parts, length);
    if (end === null || (end !== Infinity && (end > helloMax || length > end))) return broken;
    // Only when its record is whole too, so that nothing else shares the record.
    if (length === end && at <= bytes.length) return readHello(Buffer.concat(parts).subarray(4));
  }
  return more;
}

/** Where the message ends; Infinity while that is not known, null when it is no ClientHello. */
function messageEnd(parts: Buffer[], length: number): number | null {
  // No record is empty, so that the first four bytes lie in the first four.
  const head = Buffer.concat(parts.slice(0, 4).map((part) => part.subarray(0, 4)));
  if (head.length > 0 && head[0] !== clientHello) return null;
  return length < 4 ? Infinity : 4 + head.readUIntBE(1, 3);
}

/** The body of the message, after its type and length. */
function readHello(body: Buffer): FirstBytes {
  const reader = new Reader(body);
  try {
    reader.skip(2 + 32);
    reader.block(1);
    reader.block(2);
    reader.block(1);
    // A ClientHello without extensions is legal and names nobody.
    if (reader.isEmpty) return { kind: 'hello', serverName: null, hidesName: false };
    const extensions = reader.block(2);
    if (!reader.isEmpty) return broken;
    return readExtensions(extensions);
  } catch {
    return broken;
  }
}

function readExtensions(extensions: Reader): FirstBytes {
  let serverName: string | null = null;
  let hidesName = false;
  const seen = new Set<number>();
  while (!extensions.isEmpty) {
    const type = extensions.number(2);
    const data = extensions.block(2);
    // A second one of a kind would let two readers see two names (RFC 8446, section 4.2 forbids it).
    if (seen.has(type)) return broken;
    seen.add(type);
    if (type === encryptedHelloExtension) hidesName = true;
    if (type !== serverNameExtension) continue;
    const names = data.block(2);
    if (!data.isEmpty || names.number(1) !== 0) return broken;
    serverName = names.block(2).text();
    if (!names.isEmpty || serverName === '') return broken;
  }
  return { kind: 'hello', serverName, hidesName };
}

class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isEmpty(): boolean {
    return this.#at === this.#bytes.length;
  }

  skip(count: number): void {
    if (this.#at + count > this.#bytes.length) throw new RangeError('The message ends too early.');
    this.#at += count;
  }

  number(size: number): number {
    this.skip(size);
    return this.#bytes.readUIntBE(this.#at - size, size);
  }

  /** What a length of `size` bytes stands before. */
  block(size: number): Reader {
    const length = this.number(size);
    this.skip(length);
    return new Reader(this.#bytes.subarray(this.#at - length, this.#at));
  }

  text(): string {
    return this.#bytes.toString('latin1').toLowerCase();
  }
}
