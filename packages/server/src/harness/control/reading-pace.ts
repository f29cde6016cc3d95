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
/** It is looked again then; a timer takes no more than some weeks. */
const longestMs = 60_000;

/** A request of the harness: a promise, and an answer that is written. */
export const requestChars = 4 * 1024;
/** What is told is made text and cleaned, goes to the database and to whoever reads along: each event, each character, and each name and value in it. */
const eventChars = 8 * 1024;
const toldCharWeight = 2;
const toldValueChars = 128;

/** What an event counts for that is told. `chars`: of its JSON. */
export const eventCost = (chars: number, values: number): number =>
  eventChars + chars * toldCharWeight + values * toldValueChars;

/** What a line counts for in its turn, in characters. */
export const lineCost = (chars: number, values: number): number => Math.max(chars, values * valueChars);

/** Something that is read: a socket, and what keeps the rest of what it gave. */
export interface Paced {
  readonly destroyed: boolean;
  pause(): unknown;
  resume(): unknown;
}

/**
 * How fast the service reads what a sandbox sends. What is beyond it stays in the socket, so that what is inside waits in its write;
 * nothing is lost. Counted are bytes, and what they cost beyond that: also what is done because of them.
 */
export class ReadingPace {
  readonly #bucket: Bucket;
  readonly #held = new Set<Paced>();
  readonly #free = new WeakSet<Paced>();
  /** Of these nothing more comes than what is there. */
  readonly #last = new WeakSet<Paced>();
  /** What has to be on record first. */
  #awaited = 0;
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

  /** What was done because of what was read, beyond the reading. */
  charge(chars: number): void {
    this.#spend(chars);
  }

  /** No more of it may be read now. */
  isDue(paced: Paced): boolean {
    return this.#inTurn >= turnChars || this.#overMs(paced) > 0 || this.#isAwaiting(paced);
  }

  /** Nothing is read until the answer is called, however free it is: what was told so far waits in memory. */
  wait(): () => void {
    this.#awaited += 1;
    return () => {
      this.#awaited -= 1;
      if (this.#awaited === 0 && this.#held.size > 0) this.#wait(0);
    };
  }

  /** No more of it comes before the pace allows it. */
  hold(paced: Paced): void {
    if (paced.destroyed) return;
    paced.pause();
    this.#held.add(paced);
    if (!this.#isAwaiting(paced)) this.#wait(this.#overMs(paced));
  }

  /** What it sends is read without a pace, but for a turn of all others now and then. */
  free(paced: Paced): void {
    this.#free.add(paced);
    // Not at once: whoever calls may be in the middle of a line of it.
    if (this.#held.has(paced)) this.#wait(0);
  }

  /** Its other end is gone: what it has sent is read as soon as can be. */
  finish(paced: Paced): void {
    this.#last.add(paced);
    this.free(paced);
  }

  /** It is held to its pace again. */
  bind(paced: Paced): void {
    this.#free.delete(paced);
  }

  forget(paced: Paced): void {
    this.#held.delete(paced);
    if (this.#held.size === 0) this.#rest();
  }

  #isAwaiting(paced: Paced): boolean {
    return this.#awaited > 0 && !this.#last.has(paced);
  }

  #overMs(paced: Paced): number {
    return this.#free.has(paced) ? 0 : this.#bucket.overMs();
  }

  #spend(chars: number): void {
    this.#bucket.spend(chars);
    this.#inTurn += chars;
  }

  #wait(overMs: number): void {
    // One that is free goes on at once, whatever the others wait for.
    if (overMs <= 0) this.#immediate ??= setImmediate(() => this.#goOn());
    else this.#timer ??= setTimeout(() => this.#goOn(), Math.min(overMs, longestMs)).unref();
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
    // What goes on may be held again at once, and waits then like the others.
    for (const paced of [...this.#held]) {
      if (this.#isAwaiting(paced) || (overMs > 0 && !this.#free.has(paced))) continue;
      this.#held.delete(paced);
      paced.resume();
    }
    // Where something is awaited, its end goes on.
    if (this.#held.size > 0 && this.#awaited === 0) this.#wait(overMs);
  }
}
