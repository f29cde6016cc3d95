/** One frame of git's pkt-line format (gitprotocol-common): four hex digits of length, then the payload. */
export type Packet = { kind: 'data'; payload: Buffer } | { kind: 'flush' | 'delim' | 'end' };

export const flushPacket = Buffer.from('0000');
const maxPayload = 65_516;
const maxLength = maxPayload + 4;

export class PktLineError extends Error {}

export function packet(payload: string | Buffer): Buffer {
  const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
  if (bytes.length > maxPayload) throw new PktLineError(`A packet holds at most ${maxPayload} bytes.`);
  const head = (bytes.length + 4).toString(16).padStart(4, '0');
  return Buffer.concat([Buffer.from(head), bytes]);
}

/** Frames of one side-band channel: 1 is data, 2 is shown to the person as `remote: …`, 3 is a fatal error. */
export function sideBand(channel: 1 | 2 | 3, payload: string | Buffer, maxFrame = maxPayload): Buffer {
  const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
  const frames: Buffer[] = [];
  const step = maxFrame - 1;
  for (let at = 0; at < bytes.length; at += step) {
    frames.push(packet(Buffer.concat([Buffer.from([channel]), bytes.subarray(at, at + step)])));
  }
  return Buffer.concat(frames);
}

/** Cuts a byte stream into packets; what is incomplete waits for the next chunk. */
export class PktLineReader {
  #rest: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): void {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
  }

  /** The next whole packet, or null when more bytes are needed. */
  next(): Packet | null {
    if (this.#rest.length < 4) return null;
    const head = this.#rest.toString('latin1', 0, 4);
    if (!/^[0-9a-f]{4}$/i.test(head))
      throw new PktLineError('A packet does not begin with its length, four hexadecimal digits.');
    const length = Number.parseInt(head, 16);
    if (length < 4) {
      this.#rest = this.#rest.subarray(4);
      if (length === 0) return { kind: 'flush' };
      if (length === 1) return { kind: 'delim' };
      if (length === 2) return { kind: 'end' };
      throw new PktLineError('A packet has the length 3.');
    }
    if (length > maxLength)
      throw new PktLineError(`A packet has the length ${length}; at most ${maxLength} are allowed.`);
    if (this.#rest.length < length) return null;
    const payload = this.#rest.subarray(4, length);
    this.#rest = this.#rest.subarray(length);
    return { kind: 'data', payload };
  }

  /** What was not taken yet. */
  rest(): Buffer {
    return this.#rest;
  }
}
