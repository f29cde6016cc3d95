import type { Socket } from 'node:net';
import { ByteLog } from './byte-log.ts';
import type { ExecStreams } from './exec.ts';
import {
  FrameReader,
  frameKinds,
  headerBytes,
  jsonFrame,
  linesFrame,
  maxLinesBytes,
  maxPayloadBytes,
  newFrame,
  positionBytes,
  textFrame,
} from './frames.ts';

// As an object, since an `import` of it evaluates every export.
const net = process.getBuiltinModule('node:net');

/** What is kept of our lines until the service has them on record. The source is asked to pause above the first. */
const pauseBytes = 8 * 1024 * 1024;
const maxUnackedBytes = 64 * 1024 * 1024;
/** The service itself is the other side; this only bounds the memory that its error could take. */
const maxPartialBytes = 64 * 1024 * 1024;
const firstRedialMs = 20;
const maxRedialMs = 250;
/** After so long without the service nobody will ask for this sandbox any more. */
const usualMaxAwayMs = 10 * 60_000;
/** A busy machine may let the end of a process wait for its processor between the two. */
const noticeMs = 500;
const maxLogChars = 4000;
/** Of lines for people that nobody can be told yet; what the service takes at once. */
const maxHeldChars = 512 * 1024;
const heldLineChars = 32;

export interface HostLinkOptions {
  path: string;
  /** Loaded when the first command comes: most sandboxes never run one. */
  openExec: (send: (frame: Buffer) => void) => Promise<ExecStreams>;
  /** How long the service may be away. */
  maxAwayMs?: number;
  /** Ends the sandbox; the text says why. Called once. */
  onGiveUp: (why: string) => void;
}

/**
 * The launcher's end of the control channel (docs/design/control-channel.md). It dials, and dials again when the service
 * was restarted; lines in both directions are counted in bytes, and sent again from where the other side had them.
 */
export class HostLink {
  /** Whole lines from the service, with their newlines. */
  onLines: (lines: Buffer) => void = () => undefined;
  /** The service wants no more of the harness. */
  onEnd: () => void = () => undefined;
  /** Above its measure `true`, and below it again `false`. */
  onPause: (isPaused: boolean) => void = () => undefined;
  readonly #options: HostLinkOptions;
  readonly #sent = new ByteLog();
  readonly #notes = new Map<string, unknown>();
  #received = 0;
  #partial: Buffer[] = [];
  #partialBytes = 0;
  #socket: Socket | null = null;
  #isOpen = false;
  #connections = 0;
  #isPaused = false;
  #hasGivenUp = false;
  #exec: Promise<ExecStreams> | null = null;
  #awaySinceMs = performance.now();
  #redialMs = firstRedialMs;
  #waiters: (() => void)[] = [];
  /** Lines of the log, oldest first, that were said while the service was not there. */
  #held: string[] = [];
  #heldChars = 0;

  constructor(options: HostLinkOptions) {
    this.#options = options;
  }

  /** How often the service was there anew. */
  get connections(): number {
    return this.#connections;
  }

  /** Both ends of a dead service's connections close at the same moment, but are not told so at the same moment. */
  async wasAway(connections: number): Promise<boolean> {
    for (let waitedMs = 0; waitedMs < noticeMs; waitedMs += 10) {
      if (!this.#isOpen || this.#connections !== connections) return true;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return false;
  }

  /** Resolves at once while the service is there, else when it is back. */
  back(): Promise<void> {
    return this.#isOpen ? Promise.resolve() : new Promise((resolve) => this.#waiters.push(resolve));
  }

  /** Sends whole lines. */
  write(lines: string | Buffer): void {
    if (this.#hasGivenUp) return;
    const length = Buffer.byteLength(lines);
    if (this.#isOpen && typeof lines === 'string' && length <= maxLinesBytes) this.#writeOnce(lines, length);
    else this.#writeParts(typeof lines === 'string' ? Buffer.from(lines) : lines);
    if (this.#sent.bytes > maxUnackedBytes) this.#giveUp('The service does not take what it is told.');
    else if (this.#sent.bytes > pauseBytes) this.#pause(true);
  }

  /** A line for people, in the sandbox's log. */
  log(text: string): void {
    const line = text.slice(0, maxLogChars);
    if (this.#isOpen) return this.#send(textFrame(frameKinds.log, 0, line));
    this.#held.push(line);
    this.#heldChars += line.length + heldLineChars;
    while (this.#heldChars > maxHeldChars) this.#heldChars -= this.#held.shift()!.length + heldLineChars;
  }

  /**
   * Resolves when the service was told all lines of the log, or is not there to be told; at the latest after a while. At once
   * where it was never dialled.
   */
  async logged(limitMs: number): Promise<void> {
    if (this.#socket === null) return;
    const untilMs = performance.now() + limitMs;
    const isUntold = () => this.#held.length > 0 || (this.#socket?.writableLength ?? 0) > 0;
    while (isUntold() && !this.#hasGivenUp && performance.now() < untilMs)
      await new Promise((resolve) => setTimeout(resolve, 10));
  }

  dial(): void {
    const socket = net.connect({ path: this.#options.path });
    const reader = new FrameReader({
      maxBytes: maxPayloadBytes,
      onFrame: (kind, stream, payload) => this.#frame(kind, stream, payload),
      onTooLong: () => socket.destroy(),
    });
    this.#socket = socket;
    socket.on('connect', () => this.#hello(socket));
    socket.on('data', (chunk: Buffer) => reader.push(chunk));
    // `close` follows.
    socket.on('error', () => undefined);
    socket.on('close', () => this.#lost());
  }

  #hello(socket: Socket): void {
    const { base } = this.#sent;
    const hello = { version: 1, base, received: this.#received, notes: [...this.#notes] };
    socket.write(jsonFrame(frameKinds.hello, 0, hello));
  }

  #lost(): void {
    if (this.#isOpen) this.#awaySinceMs = performance.now();
    this.#isOpen = false;
    this.#partial = [];
    this.#partialBytes = 0;
    void this.#exec?.then((exec) => exec.endAll());
    const { maxAwayMs = usualMaxAwayMs } = this.#options;
    if (performance.now() - this.#awaySinceMs > maxAwayMs) return this.#giveUp('The service is gone.');
    setTimeout(() => this.dial(), this.#redialMs);
    this.#redialMs = Math.min(this.#redialMs * 2, maxRedialMs);
  }

  #giveUp(why: string): void {
    if (!this.#hasGivenUp) this.#options.onGiveUp(why);
    this.#hasGivenUp = true;
  }

  #frame(kind: number, stream: number, payload: Buffer): void {
    switch (kind) {
      case frameKinds.welcome:
        return this.#welcome(JSON.parse(payload.toString('utf8')) as { from: number });
      case frameKinds.lines:
        this.#acked(payload.readUIntBE(0, positionBytes));
        return this.#take(payload.subarray(positionBytes));
      case frameKinds.ack:
        return this.#acked(payload.readUIntBE(0, positionBytes));
      case frameKinds.note:
        return this.#note(JSON.parse(payload.toString('utf8')) as { key: string; value: unknown });
      case frameKinds.end:
        return this.onEnd();
      default:
        this.#exec ??= this.#options.openExec((frame) => this.#send(frame));
        // Frames keep their order: all of them wait for the same promise.
        void this.#exec.then((exec) => exec.frame(kind, stream, payload));
    }
  }

  #welcome({ from }: { from: number }): void {
    this.#isOpen = true;
    this.#connections += 1;
    this.#redialMs = firstRedialMs;
    this.#sent.forget(from);
    for (const chunk of this.#sent.chunks()) this.#sendLines(chunk);
    this.#heldChars = 0;
    for (const line of this.#held.splice(0)) this.log(line);
    for (const waiter of this.#waiters.splice(0)) waiter();
  }

  #acked(position: number): void {
    this.#sent.forget(position);
    if (this.#sent.bytes < pauseBytes / 2) this.#pause(false);
  }

  #note({ key, value }: { key: string; value: unknown }): void {
    if (value === null) this.#notes.delete(key);
    else this.#notes.set(key, value);
  }

  #take(bytes: Buffer): void {
    const end = bytes.lastIndexOf(0x0a) + 1;
    if (end > 0) {
      const head = bytes.subarray(0, end);
      const lines = this.#partialBytes === 0 ? head : Buffer.concat([...this.#partial, head]);
      this.#partial = [];
      this.#partialBytes = 0;
      this.#received += lines.length;
      this.onLines(lines);
    }
    if (end === bytes.length) return;
    this.#partial.push(bytes.subarray(end));
    this.#partialBytes += bytes.length - end;
    if (this.#partialBytes > maxPartialBytes) this.#socket?.destroy();
  }

  /** The usual case: the frame is what is kept. */
  #writeOnce(lines: string, length: number): void {
    const frame = newFrame(frameKinds.lines, 0, positionBytes + length);
    frame.writeUIntBE(this.#received, headerBytes, positionBytes);
    frame.write(lines, headerBytes + positionBytes);
    this.#sent.push(frame.subarray(headerBytes + positionBytes));
    this.#send(frame);
  }

  #writeParts(bytes: Buffer): void {
    this.#sent.push(bytes);
    this.#sendLines(bytes);
  }

  #sendLines(bytes: Buffer): void {
    for (let from = 0; from < bytes.length; from += maxLinesBytes) {
      this.#send(linesFrame(this.#received, bytes.subarray(from, from + maxLinesBytes)));
    }
  }

  #send(frame: Buffer): void {
    if (this.#isOpen) this.#socket?.write(frame);
  }

  #pause(isPaused: boolean): void {
    if (isPaused === this.#isPaused) return;
    this.#isPaused = isPaused;
    this.onPause(isPaused);
  }
}
