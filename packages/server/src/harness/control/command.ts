import { Readable, Writable } from 'node:stream';
import type { Bucket } from '../../domain/bucket.ts';
import { KeptBytes } from '../../domain/kept-bytes.ts';
import { SandboxControlError } from '../../domain/ports/sandbox-control.ts';
import type { SandboxProcess, SandboxProcessExit } from '../../domain/ports/sandbox-control.ts';
import { isRecord, textOf } from '../clean.ts';
import {
  dataFrame,
  eofFrame,
  frameKinds,
  maxPayloadBytes,
  newFrame,
  textFrame,
  windowBytes,
  windowFrame,
} from './frames.ts';

const unknownExit: SandboxProcessExit = { code: null, signal: null };
const refusals = new Set(['not_found', 'limit', 'failed']);
/** More is asked for when so much was read. */
const windowStepBytes = windowBytes / 4;
/** Pieces that nobody reads are put together up to here: a buffer for each byte would take hundreds of times its memory. */
const joinedBytes = 16 * 1024;

/** A stream of the sandbox that this process reads; it never holds more than the window. */
class Inlet extends Readable {
  readonly #stream: number;
  readonly #channel: 1 | 2;
  readonly #send: (frame: Buffer) => void;
  readonly #pace: Bucket;
  /** What came after what the stream holds, and goes into it by pieces of a size. */
  readonly #joined = new KeptBytes();
  #unread = 0;
  #read = 0;
  /** Read, and not asked for again until the pace allows it. */
  #held = 0;
  #isEnded = false;

  constructor(stream: number, channel: 1 | 2, send: (frame: Buffer) => void, pace: Bucket) {
    super({ highWaterMark: windowBytes });
    this.#stream = stream;
    this.#channel = channel;
    this.#send = send;
    this.#pace = pace;
  }

  /** False: more than was asked for. */
  receive(bytes: Buffer): boolean {
    if (this.#isEnded || this.destroyed) return true;
    this.#unread += bytes.length;
    if (this.#unread + this.#read + this.#held > windowBytes) return false;
    if (bytes.length < joinedBytes && this.readableLength > 0) {
      this.#joined.add(bytes);
      if (this.#joined.bytes >= joinedBytes) this.#pushJoined();
    } else if (bytes.length > 0) {
      this.#pushJoined();
      // A copy, where the frame shares its memory with much that follows it.
      const isMostOfIt = bytes.length * 2 >= bytes.buffer.byteLength;
      this.push(isMostOfIt ? bytes : Buffer.from(bytes));
    }
    this.#count();
    return true;
  }

  #pushJoined(): void {
    if (this.#joined.bytes === 0) return;
    const bytes = this.#joined.whole();
    // First, since to push may be to read.
    this.#joined.clear();
    this.push(bytes);
  }

  finish(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#pushJoined();
    this.push(null);
  }

  override _read(): void {
    // What is there was pushed already.
  }

  override read(size?: number): unknown {
    this.#pushJoined();
    const chunk: unknown = super.read(size);
    this.#count();
    return chunk;
  }

  /** What left the buffer since the last time was read by somebody. */
  #count(): void {
    const taken = this.#unread - this.readableLength - this.#joined.bytes;
    this.#unread -= taken;
    this.#read += taken;
    if (this.#read < windowStepBytes || this.#isEnded) return;
    const bytes = this.#read;
    this.#read = 0;
    const waitMs = this.#pace.spend(bytes);
    if (waitMs <= 0) return this.#ask(bytes);
    this.#held += bytes;
    setTimeout(() => {
      this.#held -= bytes;
      this.#ask(bytes);
    }, waitMs).unref();
  }

  #ask(bytes: number): void {
    if (!this.#isEnded) this.#send(windowFrame(this.#stream, this.#channel, bytes));
  }
}

/** A command's input: what the sandbox has not taken yet waits here, and holds back the writer. */
class CommandInput extends Writable {
  readonly #stream: number;
  readonly #send: (frame: Buffer) => void;
  #credit = windowBytes;
  #waiting: { bytes: Buffer; done: (error?: Error) => void } | null = null;

  constructor(stream: number, send: (frame: Buffer) => void) {
    super({ highWaterMark: windowBytes });
    this.#stream = stream;
    this.#send = send;
  }

  more(bytes: number): void {
    // A sandbox that says it took more than it was sent gets no more than the window for it.
    this.#credit = Math.min(windowBytes, this.#credit + bytes);
    this.#flush();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error) => void): void {
    this.#waiting = { bytes: chunk, done };
    this.#flush();
  }

  override _final(done: () => void): void {
    this.#send(eofFrame(this.#stream, 0));
    done();
  }

  #flush(): void {
    while (this.#waiting && this.#credit > 0) {
      const { bytes, done } = this.#waiting;
      const part = bytes.subarray(0, Math.min(this.#credit, maxPayloadBytes - 1));
      this.#credit -= part.length;
      this.#send(dataFrame(this.#stream, 0, part));
      this.#waiting = part.length === bytes.length ? null : { bytes: bytes.subarray(part.length), done };
      if (!this.#waiting) done();
    }
  }
}

/** The host's side of one command in a sandbox. Everything that `frame` is given is hostile. */
export class Command implements SandboxProcess {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly exited: Promise<SandboxProcessExit>;
  /** Resolves when it runs. */
  readonly started: Promise<void>;
  readonly id: number;
  readonly #send: (frame: Buffer) => void;
  readonly #in: CommandInput;
  readonly #out: Inlet;
  readonly #err: Inlet;
  readonly #exit = Promise.withResolvers<SandboxProcessExit>();
  readonly #start = Promise.withResolvers<void>();
  #isOver = false;
  #isStarted = false;
  #isLetGo = false;

  constructor(id: number, isOneStream: boolean, send: (frame: Buffer) => void, pace: Bucket) {
    this.id = id;
    this.#send = (frame) => {
      if (!this.#isOver) send(frame);
    };
    this.#in = new CommandInput(id, this.#send);
    this.#out = new Inlet(id, 1, this.#send, pace);
    this.#err = new Inlet(id, 2, this.#send, pace);
    if (isOneStream) this.#err.finish();
    this.stdin = this.#in;
    this.stdout = this.#out;
    this.stderr = this.#err;
    this.exited = this.#exit.promise;
    this.started = this.#start.promise;
    this.started.catch(() => undefined);
    this.#in.on('error', () => undefined);
    // Whoever lets go of the output lets go of the command.
    this.#out.on('close', () => {
      if (!this.#out.readableEnded) this.#close();
    });
    this.#out.on('error', () => undefined);
    this.#err.on('error', () => undefined);
  }

  resize(columns: number, rows: number): void {
    const frame = newFrame(frameKinds.resize, this.id, 4);
    frame.writeUInt16BE(columns, frame.length - 4);
    frame.writeUInt16BE(rows, frame.length - 2);
    this.#send(frame);
  }

  kill(signal = 'SIGTERM'): void {
    this.#send(textFrame(frameKinds.signal, this.id, signal));
  }

  /** False: it does not keep to the protocol. */
  frame(kind: number, payload: Buffer): boolean {
    switch (kind) {
      case frameKinds.started:
        this.#isStarted = true;
        this.#start.resolve();
        return true;
      case frameKinds.refused:
        this.#refuse(payload);
        return true;
      case frameKinds.data:
        return this.#inlet(payload)?.receive(payload.subarray(1)) ?? false;
      case frameKinds.eof: {
        const inlet = this.#inlet(payload);
        inlet?.finish();
        return inlet !== null;
      }
      case frameKinds.window:
        if (payload.length !== 5) return false;
        this.#in.more(payload.readUInt32BE(1));
        return true;
      case frameKinds.exit:
        this.over(readExit(payload));
        return true;
      default:
        return false;
    }
  }

  /** It has ended, or nobody knows any more what becomes of it. */
  over(exit: SandboxProcessExit = unknownExit): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#start.reject(new SandboxControlError('gone', 'The sandbox has ended.'));
    this.#out.finish();
    this.#err.finish();
    this.#in.destroy();
    this.#exit.resolve(exit);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Whether the launcher has yet to say that it runs or, since it was let go, that it has ended: it does both by itself. */
  get isOwed(): boolean {
    return !this.#isOver && (!this.#isStarted || this.#isLetGo);
  }

  #inlet(payload: Buffer): Inlet | null {
    if (payload[0] === 1) return this.#out;
    return payload[0] === 2 ? this.#err : null;
  }

  #refuse(payload: Buffer): void {
    const given = parsed(payload);
    const code = refusals.has(textOf(given['code'])) ? (given['code'] as 'failed') : 'failed';
    const message =
      typeof given['message'] === 'string' ? given['message'].slice(0, 500) : 'It did not start.';
    this.#start.reject(new SandboxControlError(code, message));
    this.over();
  }

  #close(): void {
    this.#isLetGo = true;
    this.#send(newFrame(frameKinds.close, this.id, 0));
  }
}

function readExit(payload: Buffer): SandboxProcessExit {
  const { code, signal } = parsed(payload);
  return {
    code: Number.isInteger(code) ? (code as number) & 0xff : null,
    signal: typeof signal === 'string' && /^SIG[A-Z0-9+]{1,12}$/.test(signal) ? signal : null,
  };
}

function parsed(payload: Buffer): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(payload.toString('utf8'));
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}
