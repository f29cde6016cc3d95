import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { limits } from './limits.ts';
import { FREED_BYTES, PacedSocket, ReadingAccount } from './paced.ts';

const turns = new WeakMap<Socket, Turn>();
const nothing = Buffer.alloc(0);
const endOfHead = '\r\n\r\n';
/** Where a head may end within a slice it has no less, so that a body of nothing but ends of heads costs little; it holds a few dozen requests at most. */
const BODY_BYTES = 512;

export interface InTurn {
  /** Is told when a connection is cut for what it sent. Absent: it is never cut. What came behind stays in the socket, and is read after the answer. */
  onCut?: () => void;
  /** Of those who pay for its pieces together; absent: the connection has its own. */
  account?: ReadingAccount | undefined;
}

/**
 * To be called in the event `connection` of a server of Node's for every connection of strangers and sandboxes. A piece of 64 KiB holds
 * thousands of requests, and the parser that has a piece tells of all of them, also when the connection is destroyed
 * meanwhile. So it is given a head on its own, and no more once a request came too soon. How long it takes counts (`paced.ts`).
 */
export function readInTurn(socket: Socket, options: InTurn): void {
  turns.set(socket, new Turn(socket, options));
}

/**
 * What a socket that is read in turn emits when its client has ended its side while something of it waits for an answer: `end` comes after
 * that was read, and whoever has gone altogether is to be noticed before.
 */
const sideEnded = 'sideEnded';

/** Listens for the end of a client's side, whatever of it waits. May be called for each of several answers. */
export function onSideEnded(socket: Socket, listener: () => void): () => void {
  socket.on('end', listener).on(sideEnded, listener);
  return () => void socket.off('end', listener).off(sideEnded, listener);
}

/** Whether its client has ended its side, whatever of it waits. */
export const hasSideEnded = (socket: Socket): boolean =>
  socket.readableEnded || (turns.get(socket)?.hasEnded ?? false);

/** What is known of a connection whose requests are read in turn. */
class Turn {
  private readonly socket: Socket;
  private readonly onCut: (() => void) | undefined;
  private readonly parse: ((piece: Buffer) => void)[];
  readonly paced: PacedSocket;
  /** The last request that may go on, and its answer; none to what takes over the connection. */
  message: IncomingMessage | null = null;
  answer: ServerResponse | null = null;
  /** Of the piece that is being read one goes on: whatever else it holds was sent before there could be an answer. */
  hasBegun = false;
  /** Requests that came behind one that was not answered: then the connection takes no other. */
  behind = 0;
  /** Of the piece that is being read, what the parser has not been given yet. */
  rest: Buffer = nothing;
  private bytesBehind = 0;
  /** Of the piece that is being read. */
  private parsedBytes = 0;
  /** Of the body, by what its head says. */
  private bodyLeft = 0;
  /** Of a head whose end has not come, the last bytes. */
  private lastOfHead = '';
  /** What came behind waits for its turn. */
  private isKept = false;
  hasEnded = false;

  constructor(socket: Socket, { onCut, account }: InTurn) {
    this.socket = socket;
    this.onCut = onCut;
    // The server's own, which stands here once: it reads the pieces that it is called with, and looks at all of each before it returns.
    this.parse = socket.listeners('data') as ((piece: Buffer) => void)[];
    this.paced = new PacedSocket(socket, {
      account: account ?? new ReadingAccount(),
      give: (piece) => this.give(piece),
      isParsedWhole: (piece) => piece.length >= FREED_BYTES && this.parsedBytes === piece.length,
    });
    for (const listener of this.parse) socket.off('data', listener);
    socket.prependListener('data', this.nextPiece);
    if (!this.isOfSandbox) this.hearEnd();
  }

  private hearEnd(): void {
    const { socket } = this;
    const push = socket.push.bind(socket);
    socket.push = (piece: unknown, encoding?: BufferEncoding) => {
      if (piece === null) this.hasEnded = true;
      const isMoreWanted = push(piece, encoding);
      if (piece === null && this.isKept) socket.emit(sideEnded);
      return isMoreWanted;
    };
  }

  private readonly nextPiece = (): void => {
    this.parsedBytes = 0;
    if (!this.isKept) this.hasBegun = false;
  };

  begin(message: IncomingMessage, answer: ServerResponse | null): void {
    this.message = message;
    this.answer = answer;
    this.hasBegun = true;
    const { 'content-length': length, 'transfer-encoding': coding } = message.headers;
    this.bodyLeft = Number(length ?? 0) || 0;
    this.paced.headCame(message, length !== undefined || coding !== undefined);
  }

  /** Before another one reads the connection; what the parser was not given. */
  leave(): Buffer {
    this.paced.leave();
    this.socket.off('data', this.nextPiece);
    const { rest } = this;
    this.rest = nothing;
    return rest;
  }

  /** At once: more came than a client that only pipelines would send. */
  cut(): void {
    if (this.socket.destroyed || this.onCut === undefined) return;
    this.socket.destroy();
    this.onCut();
  }

  /** It is cut for what comes behind, and never waits with its own side closed. */
  get isOfSandbox(): boolean {
    return this.onCut !== undefined;
  }

  private give(piece: Buffer): number {
    if (this.behind > 0) return this.throwAway(piece);
    // Refused or given up: nothing more is read of it.
    if (!this.socket.writable || this.isLast()) return piece.length;
    if (this.mustKeep()) return this.keep();
    const slice = piece.subarray(0, this.sliceEnd(piece));
    this.parsedBytes += slice.length;
    this.rest = piece.subarray(slice.length);
    for (const parse of this.parse) parse.call(this.socket, slice);
    this.rest = nothing;
    return slice.length;
  }

  private throwAway(piece: Buffer): number {
    this.bytesBehind += piece.length;
    if (this.bytesBehind > limits.pipelinedBytes) this.cut();
    return piece.length;
  }

  /** The connection ends with an answer that has been given. */
  private isLast(): boolean {
    return (
      !this.isOfSandbox &&
      this.answer !== null &&
      this.answer.writableFinished &&
      !this.answer.shouldKeepAlive
    );
  }

  private mustKeep(): boolean {
    if (this.isKept) return true;
    if (this.onCut !== undefined || !this.message?.complete || this.answer === null) return false;
    return this.hasBegun || !this.answer.writableFinished;
  }

  /** In the socket, which reads no more than fits into it, and tells its end after what is in it. */
  private keep(): number {
    this.isKept = true;
    if (this.hasEnded) process.nextTick(() => this.socket.emit(sideEnded));
    // A request each time that the event loop comes round, however many have come.
    const next = (): void => void setImmediate(() => this.readKept());
    if (this.answer!.writableFinished) next();
    else this.answer!.once('close', next);
    return 0;
  }

  private readKept(): void {
    this.isKept = false;
    this.paced.goOn();
  }

  private sliceEnd(piece: Buffer): number {
    const most = Math.min(piece.length, this.paced.sliceBytes);
    const isInBody = this.message !== null && !this.message.complete;
    // What comes behind is not to be parsed where it is kept; where it is thrown away, it is to be counted.
    if (!isInBody && !this.isOfSandbox) return this.headEnd(piece, most);
    if (isInBody && this.bodyLeft > 0) {
      // It comes as one piece, however long it is.
      const bytes = Math.min(piece.length, this.bodyLeft);
      this.bodyLeft -= bytes;
      return bytes;
    }
    const at = piece.indexOf(endOfHead, BODY_BYTES - endOfHead.length);
    return at < 0 ? most : Math.min(most, at + endOfHead.length);
  }

  private headEnd(piece: Buffer, most: number): number {
    const before = this.lastOfHead;
    const missing = endOfHead.length - 1;
    const atBegin = (before + piece.toString('latin1', 0, missing)).indexOf(endOfHead);
    const at = atBegin >= 0 ? atBegin - before.length : piece.indexOf(endOfHead);
    const end = at + endOfHead.length;
    const hasEnd = (atBegin >= 0 || at >= 0) && end <= most;
    const last = (before + piece.toString('latin1', Math.max(0, most - missing), most)).slice(-missing);
    this.lastOfHead = hasEnd ? '' : last;
    return hasEnd ? end : most;
  }
}

/** For what takes over a connection (CONNECT, an upgrade): all that came behind it, of which Node's server says the begin. */
export function takeOver(socket: Socket, begin: Buffer): Buffer {
  const rest = turns.get(socket)!.leave();
  return rest.length === 0 ? begin : Buffer.concat([begin, rest]);
}

/**
 * Whether a request that Node's server tells of may go on; asked first, by every server that strangers or sandboxes reach. Node parses
 * what a client sends behind a request at once, and tells of it before anything is answered, so that limits of
 * connections would limit nothing: here a connection has one request at a time. What came behind one that is not answered yet
 * is thrown away, and the connection closed after that answer, unless it was kept before it was parsed; a client that pipelines must expect that, and sends again what
 * had no answer (RFC 9112, section 9.3.2). `response` is null for what takes over the connection (CONNECT, an upgrade).
 */
export function mayGoOn(message: IncomingMessage, response: ServerResponse | null): boolean {
  const { socket } = message;
  const turn = turns.get(socket)!;
  const before = turn.answer;
  const isAnswered = before === null || (before.writableEnded && before.shouldKeepAlive);
  if (isAnswered && !turn.hasBegun && turn.behind === 0) {
    turn.begin(message, response);
    return true;
  }
  turn.behind += 1;
  if (turn.behind === 1) endAfter(socket, before!, turn.isOfSandbox);
  // Node keeps each until the connection is closed.
  if (turn.behind > limits.pipelinedRequests) turn.cut();
  else message.resume();
  return false;
}

/** For the event `checkExpectation`: else Node answers by itself, and no request of the kind would be counted (RFC 9110, section 10.1.1). */
export function refuseExpectation(message: IncomingMessage, response: ServerResponse): void {
  if (!mayGoOn(message, response)) return;
  response.writeHead(417, { connection: 'close', 'content-length': 0 }).end();
}

/** It is read on, since only so it is heard that the client has gone. */
function endAfter(socket: Socket, answer: ServerResponse, isEnded: boolean): void {
  if (answer.writableFinished) return void socket.destroySoon();
  // It says so to the client, when its head has not been sent.
  answer.shouldKeepAlive = false;
  answer.once('finish', () => socket.destroySoon());
  // Before the server looks whether the last request is whole: it is not, where it was not parsed.
  if (isEnded) socket.prependOnceListener('end', () => socket.destroy());
  socket.resume();
}
