import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { limits } from './limits.ts';

/** What is known of a connection whose requests are read in turn. */
interface Turn {
  /** To the last request that may go on. */
  answer: ServerResponse | null;
  /** Of the piece that is being read one goes on: whatever else it holds was sent before there could be an answer. */
  hasBegun: boolean;
  /** Requests that came behind one that was not answered: then the connection takes no other. */
  behind: number;
  /** Of the piece that is being read, what the parser has not been given yet. */
  rest: Buffer;
  /** Another one reads the connection from now on. */
  leave(): void;
  /** At once: more came than a client that only pipelines would send. */
  cut(): void;
}

const turns = new WeakMap<Socket, Turn>();
const nothing = Buffer.alloc(0);
const endOfHead = '\r\n\r\n';
/** The parser is given no less, so that a body of nothing but ends of heads costs little; it holds a few dozen requests at most. */
const SLICE_BYTES = 512;

/**
 * To be called in the event `connection` of a server of Node's for every connection of a sandbox. A piece of 64 KiB holds
 * thousands of requests, and the parser that has a piece tells of all of them, also when the connection is destroyed
 * meanwhile. So it is given a piece as far as the next end of a head only, and no more once a request came too soon. A
 * body goes through whole, unless it looks like heads. `onCut` is told when a connection is cut for what it sent.
 */
export function readInTurn(socket: Socket, onCut: () => void): void {
  // The server's own, which stands here once: it reads the pieces that it is called with, and looks at all of each before it returns.
  const parse = socket.listeners('data');
  let bytesBehind = 0;
  const turn: Turn = {
    answer: null,
    hasBegun: false,
    behind: 0,
    rest: nothing,
    leave: () => void socket.off('data', read),
    cut: () => {
      if (socket.destroyed) return;
      socket.destroy();
      onCut();
    },
  };
  const read = (piece: Buffer): void => {
    turn.rest = piece;
    turn.hasBegun = false;
    while (turn.rest.length > 0 && turn.behind === 0) {
      // Node stops it while too much waits to be sent.
      if (socket.isPaused()) return void socket.unshift(turn.rest);
      // Refused or given up: nothing more is read of it.
      if (!socket.writable) return;
      const slice = turn.rest.subarray(0, sliceEnd(turn.rest));
      turn.rest = turn.rest.subarray(slice.length);
      for (const give of parse) give.call(socket, slice);
    }
    bytesBehind += turn.rest.length;
    if (bytesBehind > limits.pipelinedBytes) turn.cut();
  };
  turns.set(socket, turn);
  socket.on('data', read);
  for (const listener of parse) socket.off('data', listener as () => void);
}

function sliceEnd(piece: Buffer): number {
  const at = piece.indexOf(endOfHead, SLICE_BYTES - endOfHead.length);
  return at < 0 ? piece.length : at + endOfHead.length;
}

/** For what takes over a connection (CONNECT, an upgrade): all that came behind it, of which Node's server says the begin. */
export function takeOver(socket: Socket, begin: Buffer): Buffer {
  const turn = turns.get(socket)!;
  turn.leave();
  const { rest } = turn;
  turn.rest = nothing;
  return rest.length === 0 ? begin : Buffer.concat([begin, rest]);
}

/**
 * Whether a request that Node's server tells of may go on; asked first, by every server that a sandbox reaches. Node parses
 * what a client sends behind a request at once, and tells of it before anything is answered, so that limits of
 * connections would limit nothing: here a connection has one request at a time. What came behind one that is not answered yet
 * is thrown away, and the connection closed after that answer; a client that pipelines must expect that, and sends again what
 * had no answer (RFC 9112, section 9.3.2). `response` is null for what takes over the connection (CONNECT, an upgrade).
 */
export function mayGoOn(message: IncomingMessage, response: ServerResponse | null): boolean {
  const { socket } = message;
  const turn = turns.get(socket)!;
  const before = turn.answer;
  const isAnswered = before === null || (before.writableEnded && before.shouldKeepAlive);
  if (isAnswered && !turn.hasBegun && turn.behind === 0) {
    turn.answer = response;
    turn.hasBegun = true;
    return true;
  }
  turn.behind += 1;
  if (turn.behind === 1) endAfter(socket, before!);
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
function endAfter(socket: Socket, answer: ServerResponse): void {
  if (answer.writableFinished) return void socket.destroySoon();
  // It says so to the client, when its head has not been sent.
  answer.shouldKeepAlive = false;
  answer.once('finish', () => socket.destroySoon());
  // Before the server looks whether the last request is whole: it is not, where it was not parsed.
  socket.prependOnceListener('end', () => socket.destroy());
  socket.resume();
}
