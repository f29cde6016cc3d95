import type { Socket } from 'node:net';
import { FrameReader } from './frames.ts';
import type { Paced, ReadingPace } from './reading-pace.ts';

interface IntakeOptions {
  pace: ReadingPace;
  maxBytes: number;
  onFrame: (kind: number, stream: number, payload: Buffer) => void;
  /** Takes what is left of the last frame, as far as it may. */
  goOn: () => void;
  onTooLong: () => void;
  /** A handler threw: nothing more is read. */
  onFault: (error: unknown) => void;
  /** The connection is closed, and what came before that was handled. */
  onEnd: () => void;
}

/**
 * What comes on one connection, handled up to where the pace lets it. Some hundred lines come in one piece, and each may take
 * a millisecond: what is left of a piece waits here, and what follows it in the socket.
 */
export class Intake implements Paced {
  readonly #socket: Socket;
  readonly #pace: ReadingPace;
  readonly #options: IntakeOptions;
  readonly #reader: FrameReader;
  /** Frames that came while it was held. */
  #waiting: [kind: number, stream: number, payload: Buffer][] = [];
  readonly #ended = Promise.withResolvers<void>();
  #isHeld = false;
  #isStopped = false;
  #isClosed = false;

  constructor(socket: Socket, options: IntakeOptions) {
    this.#socket = socket;
    this.#pace = options.pace;
    this.#options = options;
    const { maxBytes, onFrame, onTooLong } = options;
    this.#reader = new FrameReader({
      maxBytes,
      onTooLong,
      onFrame: (...frame) => {
        if (this.isHeld) this.#waiting.push(frame);
        else onFrame(...frame);
      },
    });
    socket.on('data', (chunk: Buffer) => this.#read(() => this.#reader.push(chunk)));
    socket.on('close', () => this.#close());
    // Whoever was there before it has spent for it too.
    this.#settle();
  }

  /** Resolves when nothing more comes of it. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Asked before each frame and line. It stays so until it is resumed: what is left is handled in its order. */
  get isHeld(): boolean {
    return (this.#isHeld ||= this.#pace.isDue(this));
  }

  get destroyed(): boolean {
    return this.#isStopped || (this.#isClosed && !this.#isHeld);
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#isHeld = false;
    this.#read(() => {
      this.#options.goOn();
      this.#goOn();
    });
    if (this.#isHeld) return;
    if (this.#isClosed) this.#end();
    else this.#socket.resume();
  }

  /** Nothing is handled any more. */
  stop(): void {
    this.#isStopped = true;
    this.#waiting = [];
    this.#reader.stop();
  }

  #goOn(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const [at, frame] of waiting.entries()) {
      if (this.#isStopped) return;
      if (this.isHeld) {
        this.#waiting = waiting.slice(at);
        return;
      }
      this.#options.onFrame(...frame);
    }
  }

  #read(work: () => void): void {
    try {
      work();
    } catch (error) {
      // One sandbox must not end the service and, since it would say the same again, the next start of it.
      this.stop();
      this.#options.onFault(error);
    }
    this.#settle();
  }

  #settle(): void {
    if (!this.#isStopped && this.isHeld) this.#pace.hold(this);
  }

  #close(): void {
    this.#isClosed = true;
    if (this.#isStopped || !this.#isHeld) return this.#end();
    // Nobody sends more: no pace is needed for what is there.
    this.#pace.finish(this);
  }

  #end(): void {
    this.#pace.forget(this);
    this.#options.onEnd();
    this.#ended.resolve();
  }
}
