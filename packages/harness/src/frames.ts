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

/** Cuts a byte stream into frames. `onFrame` may keep the payload. A frame that is too long ends it. */
export class FrameReader {
  readonly #onFrame: (kind: number, stream: number, payload: Buffer) => void;
  readonly #onTooLong: () => void;
  readonly #maxBytes: number;
  #rest: Buffer[] = [];
  #restBytes = 0;
  /** Of the frame that is being read; what must be there before it is worth a look. */
  #wanted = headerBytes;
  #isStopped = false;

  constructor(options: {
    onFrame: (kind: number, stream: number, payload: Buffer) => void;
    onTooLong: () => void;
    maxBytes: number;
  }) {
    this.#onFrame = options.onFrame;
    this.#onTooLong = options.onTooLong;
    this.#maxBytes = options.maxBytes;
  }

  push(chunk: Buffer): void {
    if (this.#isStopped) return;
    this.#rest.push(chunk);
    this.#restBytes += chunk.length;
    if (this.#restBytes < this.#wanted) return;
    let bytes = this.#rest.length === 1 ? chunk : Buffer.concat(this.#rest, this.#restBytes);
    while (bytes.length >= headerBytes) {
      const length = bytes.readUInt32BE(0);
      if (length > this.#maxBytes) {
        this.stop();
        return this.#onTooLong();
      }
      this.#wanted = headerBytes + length;
      if (bytes.length < this.#wanted) break;
      this.#onFrame(bytes[4]!, bytes.readUInt32BE(5), bytes.subarray(headerBytes, this.#wanted));
      if (this.#isStopped) return;
      bytes = bytes.subarray(this.#wanted);
      this.#wanted = headerBytes;
    }
    this.#rest = bytes.length === 0 ? [] : [bytes];
    this.#restBytes = bytes.length;
  }

  /** Nothing is read any more. */
  stop(): void {
    this.#isStopped = true;
    this.#rest = [];
  }
}
