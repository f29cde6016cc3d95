/**
 * Frames of the control channel (docs/design/control-channel.md): length of the payload (4 bytes), kind (1), stream (4),
 * payload. Numbers are big-endian. The service has the same table, and a test that compares both.
 */
export const frameKinds = {
  hello: 1,
  welcome: 2,
  lines: 3,
  ack: 4,
  note: 5,
  log: 6,
  end: 7,
  exec: 10,
  started: 11,
  refused: 12,
  data: 13,
  eof: 14,
  window: 15,
  signal: 16,
  resize: 17,
  exit: 18,
  close: 19,
  connect: 20,
} as const;

export type FrameKind = (typeof frameKinds)[keyof typeof frameKinds];

export const headerBytes = 9;
/** Of a frame's payload; `hello` alone may be larger. */
export const maxPayloadBytes = 64 * 1024;
/** What may be under way in one direction of a stream before the receiver has asked for more. */
export const windowBytes = 256 * 1024;
export const maxStreams = 64;
/** Connections to servers inside, beside the commands. */
export const maxConnections = 100;
/** A position in a stream of lines, in front of `lines` and as the payload of `ack`. */
export const positionBytes = 6;
export const maxLinesBytes = maxPayloadBytes - positionBytes;

/** `stdin`, `stdout`, `stderr`: the first byte of `data`, `eof` and `window`. */
export type Channel = 0 | 1 | 2;

/** A frame with room for `payloadBytes` after the header; the caller fills it. */
export function newFrame(kind: FrameKind, stream: number, payloadBytes: number): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + payloadBytes);
  frame.writeUInt32BE(payloadBytes, 0);
  frame[4] = kind;
  frame.writeUInt32BE(stream, 5);
  return frame;
}

export function jsonFrame(kind: FrameKind, stream: number, value: unknown): Buffer {
  return textFrame(kind, stream, JSON.stringify(value));
}

export function textFrame(kind: FrameKind, stream: number, text: string): Buffer {
  const frame = newFrame(kind, stream, Buffer.byteLength(text));
  frame.write(text, headerBytes);
  return frame;
}

/** A `data` frame of one channel of a stream. */
export function dataFrame(stream: number, channel: Channel, bytes: Buffer): Buffer {
  const frame = newFrame(frameKinds.data, stream, bytes.length + 1);
  frame[headerBytes] = channel;
  bytes.copy(frame, headerBytes + 1);
  return frame;
}

export function positionFrame(position: number): Buffer {
  const frame = newFrame(frameKinds.ack, 0, positionBytes);
  frame.writeUIntBE(position, headerBytes, positionBytes);
  return frame;
}

/** Answers how many bytes more of a channel its sender may send. */
export function windowFrame(stream: number, channel: Channel, bytes: number): Buffer {
  const frame = newFrame(frameKinds.window, stream, 5);
  frame[headerBytes] = channel;
  frame.writeUInt32BE(bytes, headerBytes + 1);
  return frame;
}

export function eofFrame(stream: number, channel: Channel): Buffer {
  const frame = newFrame(frameKinds.eof, stream, 1);
  frame[headerBytes] = channel;
  return frame;
}

/** Whole lines, with what the sender acknowledges of the other side's; `bytes` at most `maxLinesBytes`. */
export function linesFrame(acknowledged: number, bytes: Buffer): Buffer {
  const frame = newFrame(frameKinds.lines, 0, positionBytes + bytes.length);
  frame.writeUIntBE(acknowledged, headerBytes, positionBytes);
  bytes.copy(frame, headerBytes + positionBytes);
  return frame;
}

interface FrameReaderOptions {
  onFrame: (kind: number, stream: number, payload: Buffer) => void;
  onTooLong: () => void;
  maxBytes: number;
}

/**
 * Cuts a byte stream into frames. `onFrame` may keep the payload. A frame that is too long ends it. A frame that comes in
 * pieces is put together in memory of its own size: joined with what is behind it, each byte of a stream without end would be
 * copied twice, in buffers so large that the kernel hands out and clears new memory for each.
 */
export class FrameReader {
  readonly #options: FrameReaderOptions;
  readonly #header = Buffer.alloc(headerBytes);
  #headerFilled = 0;
  /** Of the frame whose header is there, and whose end is not. */
  #payload: Buffer | null = null;
  #filled = 0;
  #isStopped = false;

  constructor(options: FrameReaderOptions) {
    this.#options = options;
  }

  push(chunk: Buffer): void {
    let bytes = chunk;
    while (bytes.length > 0 && !this.#isStopped)
      bytes = this.#payload ? this.#fill(this.#payload, bytes) : this.#begin(bytes);
  }

  /** Gives what it did not take. */
  #begin(bytes: Buffer): Buffer {
    const taken = bytes.copy(this.#header, this.#headerFilled);
    this.#headerFilled += taken;
    const rest = bytes.subarray(taken);
    if (this.#headerFilled < headerBytes) return rest;
    this.#headerFilled = 0;
    const length = this.#header.readUInt32BE(0);
    if (length > this.#options.maxBytes) {
      this.stop();
      this.#options.onTooLong();
    } else if (rest.length >= length) {
      this.#end(rest.subarray(0, length));
      return rest.subarray(length);
    } else {
      this.#payload = Buffer.allocUnsafe(length);
      this.#filled = 0;
    }
    return rest;
  }

  #fill(payload: Buffer, bytes: Buffer): Buffer {
    const taken = bytes.copy(payload, this.#filled);
    this.#filled += taken;
    if (this.#filled === payload.length) {
      this.#payload = null;
      this.#end(payload);
    }
    return bytes.subarray(taken);
  }

  #end(payload: Buffer): void {
    this.#options.onFrame(this.#header[4]!, this.#header.readUInt32BE(5), payload);
  }

  /** Nothing is read any more. */
  stop(): void {
    this.#isStopped = true;
    this.#payload = null;
  }
}
