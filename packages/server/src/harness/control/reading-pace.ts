import type { Socket } from 'node:net';
import { Bucket, type Pace } from '../../domain/bucket.ts';

/** To read a line takes time for each name and value in it, and for the line itself, however short they are. */
const valueChars = 16;
const lineChars = 512;
/** An ordinary line has fewer. Those beyond can be as costly as an object of a shape of its own for each, and count for it here. */
const ordinaryValues = 32;
const furtherValueChars = 64;
/** After so much everything else has its turn, also where the pace allows more. */
const turnChars = 1024 * 1024;
const frameChars = 64;

/** What a line counts for in its turn, in characters. */
export const lineCost = (chars: number, values: number): number => Math.max(chars, values * valueChars);

/**
 * How fast the service reads what a sandbox sends. What is beyond it stays in the socket, so that what is inside waits in its write;
 * nothing is lost. Counted are bytes, and what they cost beyond that.
 */
export class ReadingPace {
  readonly #bucket: Bucket;
  readonly #held = new Set<Socket>();
  readonly #free = new WeakSet<Socket>();
  #timer: NodeJS.Timeout | null = null;
  #immediate: NodeJS.Immediate | null = null;
  #inTurn = 0;

  constructor(pace: Pace) {
    this.#bucket = new Bucket(pace);
  }

  get isHolding(): boolean {
    return this.#held.size > 0;
  }

  frame(bytes: number): void {
    this.#spend(frameChars + bytes);
  }

  /** Its bytes were counted with their frames. */
  line(chars: number, values: number): void {
    const further = (values - ordinaryValues) * furtherValueChars;
    this.#spend(Math.max(lineChars, lineCost(chars, values), further) - chars);
  }

  /** After each piece that was read: no more of it comes before the pace allows it. */
  hold(socket: Socket): void {
    const overMs = this.#free.has(socket) ? 0 : this.#bucket.overMs();
    if (overMs <= 0 && this.#inTurn < turnChars) return;
    if (socket.destroyed) return;
    socket.pause();
    this.#held.add(socket);
    this.#wait(overMs);
  }

  /** What it sends is read without a pace, but for a turn of all others now and then. */
  free(socket: Socket): void {
    this.#free.add(socket);
    if (this.#held.delete(socket)) socket.resume();
  }

  /** It is held to its pace again. */
  bind(socket: Socket): void {
    this.#free.delete(socket);
  }

  forget(socket: Socket): void {
    this.#held.delete(socket);
    if (this.#held.size === 0) this.#rest();
  }

  #spend(chars: number): void {
    this.#bucket.spend(chars);
    this.#inTurn += chars;
  }

  #wait(overMs: number): void {
    // One that is free goes on at once, whatever the others wait for.
    if (overMs <= 0) this.#immediate ??= setImmediate(() => this.#goOn());
    else this.#timer ??= setTimeout(() => this.#goOn(), overMs).unref();
  }

  #rest(): void {
    if (this.#timer) clearTimeout(this.#timer);
    if (this.#immediate) clearImmediate(this.#immediate);
    this.#timer = null;
    this.#immediate = null;
  }

  #goOn(): void {
    this.#rest();
    this.#inTurn = 0;
    const overMs = this.#bucket.overMs();
    for (const socket of this.#held) {
      if (overMs > 0 && !this.#free.has(socket)) continue;
      this.#held.delete(socket);
      socket.resume();
    }
    if (this.#held.size > 0) this.#wait(overMs);
  }
}
