import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { halfOfLoop, Lane, oneStep } from './slices.ts';

/**
 * No parser is given more at once: in pieces of one byte it takes half a millisecond for the less of it. Who has sent much that was cheap is given
 * more at once, up to what takes a few milliseconds.
 */
export const SLICE_BYTES = { least: 2 * 1024, most: 16 * 1024 };
/** So much of what was cheap, since the last that was not. */
const CHEAP_OF_SLICE = 16;
/** What honest bytes cost at most, with the places that they go to; a piece of one byte costs a hundred times as much. */
const FREE_MS_OF_BYTE = 8e-6;
/** Of what came from the kernel at once, however it is cut. */
const FREE_MS_OF_READ = 0.05;
/** No piece of a body takes longer; where the clock says so, other processes had the processor. */
const MOST_MS_OF_PIECE = 0.003;
/** The work on a head is paid for where requests are counted. */
const FREE_MS_OF_HEAD = 1;
/** Who owes no more goes by, so that a compilation or a collection of garbage that fell on one is not its fault. */
const FREE_MS = 0.5;
/** It is forgiven so much of each millisecond, and owes no more than the worst it can be made to. */
const FORGIVEN = 0.01;
const MOST_MS = 20;

/** What the reading of one connection, or of all of one tenant, took beyond what its bytes and heads are worth. */
export class ReadingAccount {
  private owedMs = 0;
  private seenMs = 0;

  owes(nowMs: number): boolean {
    this.owedMs = Math.max(0, this.owedMs - (nowMs - this.seenMs) * FORGIVEN);
    this.seenMs = nowMs;
    return this.owedMs > FREE_MS;
  }

  charge(ms: number): void {
    this.owedMs = Math.min(MOST_MS, this.owedMs + ms);
  }
}

/** Of this process: together they take half of the event loop at most. */
const readings = new Lane(halfOfLoop);

export interface PacedOptions {
  account: ReadingAccount;
  /** Gives a parser as much of it as it likes, `sliceBytes` at most where small pieces could be in it, and says how much that was; none: it is to be held until `goOn`. */
  give: (piece: Buffer) => number;
  lane?: Lane;
  /** Whether all of a piece that was given was parsed, and nobody has kept a part of it. */
  isParsedWhole?: (piece: Buffer) => boolean;
}

/** What is at least as long lies outside of the heap. */
export const FREED_BYTES = 4 * 1024;

/**
 * The parser copies bodies. Both copies together are more than V8 lets lie until the next quick collection of garbage, and an
 * upload would be one slow collection after the other: a piece that came from the kernel is given back at once.
 */
function free({ buffer, byteOffset, byteLength }: Buffer): void {
  if (byteOffset === 0 && buffer.byteLength === byteLength) (buffer as ArrayBuffer).transfer(0);
}

/**
 * Reads a socket whose other end chooses what comes, at a pace of time: a piece of 64 KiB may hold ten thousand pieces of a body, and
 * libuv reads up to 32 such in a row. What is cheap for its bytes goes through at once. Who owes time waits its turn in a
 * lane that all have together, with the socket paused and what was read put back, so that its end is told after it.
 * Whoever else stops the socket or lets it go on (Node's parser does) is heard when it is not waiting.
 */
export class PacedSocket {
  private readonly socket: Duplex;
  private readonly options: PacedOptions;
  private readonly lane: Lane;
  private readonly joined: JoinedBody[] = [];
  /** By somebody else. */
  private isStopped = false;
  private isWaiting = false;
  private isHeld = false;
  private isItsTurn = false;
  private hasLeft = false;
  private freeMs = 0;
  /** Of bodies, in the slice that is being parsed. */
  private pieces = 0;
  /** Bytes since the last that took longer than they are worth. */
  private cheapBytes = 0;

  constructor(socket: Duplex, options: PacedOptions) {
    this.socket = socket;
    this.options = options;
    this.lane = options.lane ?? readings;
    socket.on('data', this.read);
    const own = socket as { pause: () => Duplex; resume: () => Duplex };
    own.pause = () => {
      this.isStopped = true;
      return this.pause();
    };
    own.resume = () => {
      this.isStopped = false;
      return this.resume();
    };
  }

  readonly read = (piece: Buffer): void => {
    let rest = piece;
    this.freeMs = FREE_MS_OF_READ;
    while (rest.length > 0 && !this.hasLeft) {
      if (this.isStopped || this.isHeld) break;
      if (!this.isItsTurn && this.mustWait()) break;
      const taken = this.giveTimed(rest);
      if (taken === 0) this.isHeld = true;
      rest = rest.subarray(taken);
    }
    // What is made of it is as long as its bytes are many, and not counted.
    if (this.joined.length > 0) this.tell();
    if (rest.length > 0 && !this.hasLeft) this.putBack(rest);
    // Whoever has taken the connection over has the end of it.
    else if (!this.hasLeft && !this.isItsTurn && this.options.isParsedWhole?.(piece)) free(piece);
  };

  /** The parser is given no more at once, where small pieces could be in it. */
  get sliceBytes(): number {
    const { least, most } = SLICE_BYTES;
    return Math.min(most, Math.max(least, Math.floor(this.cheapBytes / CHEAP_OF_SLICE)));
  }

  /** A message whose head was just parsed: what of its body is parsed at once is told as one piece. */
  headCame(message: IncomingMessage, hasBody: boolean): void {
    this.freeMs += FREE_MS_OF_HEAD;
    if (hasBody) this.joined.push(new JoinedBody(message, this.countPiece));
  }

  /** After `give` took nothing. */
  goOn(): void {
    if (this.hasLeft) return;
    this.isHeld = false;
    if (!this.isStopped) this.resume();
  }

  /** Another one reads the socket from now on. */
  leave(): void {
    // It may have another reader of this kind by now.
    if (this.hasLeft) return;
    this.hasLeft = true;
    this.socket.off('data', this.read);
    const own = this.socket as Partial<Duplex>;
    delete own.pause;
    delete own.resume;
  }

  /** Lets it flow after `leave`, when it was only paused here. */
  letGo(): void {
    if (!this.isStopped) this.socket.resume();
  }

  private readonly countPiece = (): void => {
    this.pieces += 1;
  };

  private tell(): void {
    const bodies = this.joined.splice(0);
    for (const body of bodies) if (!body.tell()) this.socket.pause();
    for (const body of bodies) if (!body.isOver) this.joined.push(body);
  }

  /** Charges what lasts longer than its bytes are worth. */
  private giveTimed(piece: Buffer): number {
    const { clock } = this.lane;
    this.pieces = 0;
    const begunMs = clock.nowMs();
    const taken = this.options.give(piece);
    const tookMs = clock.nowMs() - begunMs - taken * FREE_MS_OF_BYTE - this.freeMs;
    // A body that nobody reads any more tells of none.
    const ms = this.pieces === 0 ? tookMs : Math.min(tookMs, this.pieces * MOST_MS_OF_PIECE);
    this.freeMs = 0;
    this.cheapBytes = ms > 0 ? 0 : this.cheapBytes + taken;
    if (ms <= 0) return taken;
    this.options.account.charge(ms);
    // In the lane it is counted there.
    if (!this.isItsTurn) this.lane.charge(ms);
    return taken;
  }

  private mustWait(): boolean {
    if (this.isWaiting) return true;
    if (this.lane.isFree || !this.options.account.owes(this.lane.clock.nowMs())) return false;
    this.isWaiting = true;
    // What is read here may have been asked for by what runs now.
    setImmediate(() => this.queue());
    return true;
  }

  /** A slice each time, so that the connections of one tenant have turns as well. */
  private queue(): void {
    void this.lane.run(
      this.options.account,
      oneStep(() => this.takeTurn()),
    );
  }

  private takeTurn(): void {
    const { socket } = this;
    if (this.mayRead()) {
      this.isItsTurn = true;
      // Told to `read` by the event.
      socket.read(Math.min(this.sliceBytes, socket.readableLength));
      this.isItsTurn = false;
    }
    if (this.mayRead()) return this.queue();
    this.isWaiting = false;
    if (!this.hasLeft && !this.isStopped) this.resume();
  }

  private mayRead(): boolean {
    const { socket } = this;
    return !this.hasLeft && !this.isStopped && !this.isHeld && !socket.destroyed && socket.readableLength > 0;
  }

  private putBack(rest: Buffer): void {
    this.pause();
    // After the end has been told nobody is to be answered any more.
    if (!this.socket.readableEnded && !this.socket.destroyed) this.socket.unshift(rest);
  }

  private pause(): Duplex {
    return (Object.getPrototypeOf(this.socket) as Duplex).pause.call(this.socket);
  }

  private resume(): Duplex {
    if (this.isWaiting || this.isHeld) return this.socket;
    return (Object.getPrototypeOf(this.socket) as Duplex).resume.call(this.socket);
  }
}

/** Pieces that were parsed in one go are one: whoever reads them pays for each, in memory too. */
class JoinedBody {
  isOver = false;
  private pieces: Buffer[] = [];
  private readonly push: (piece: Buffer | null) => boolean;

  constructor(message: IncomingMessage, onPiece: () => void) {
    this.push = message.push.bind(message);
    message.push = (piece: Buffer | null) => {
      if (piece !== null) {
        onPiece();
        return this.pieces.push(piece) > 0;
      }
      this.tell();
      this.isOver = true;
      return this.push(null);
    };
    message.once('close', () => (this.isOver = true));
  }

  /** Whether more is wanted. */
  tell(): boolean {
    const { pieces } = this;
    if (pieces.length === 0) return true;
    this.pieces = [];
    if (pieces.length === 1) return this.push(pieces[0]!);
    const whole = Buffer.concat(pieces);
    for (const piece of pieces) if (piece.length >= FREED_BYTES) free(piece);
    return this.push(whole);
  }
}
