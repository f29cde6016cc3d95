import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { FREED_BYTES, PacedSocket, ReadingAccount } from './paced.ts';

/**
 * Reads the answer to a request at a pace (`paced.ts`), where somebody else chose who answers. To be called right after the request was
 * made, and before its listeners.
 */
export function paceAnswer(request: ClientRequest, options: AnswerOptions = {}): void {
  request.once('socket', (socket) => pace(request, socket, options));
}

export interface AnswerOptions {
  /** Absent: it has its own. */
  account?: ReadingAccount;
  /** The socket is one of Node's own, whose pieces nobody else has. */
  isOfNode?: boolean;
}

function pace(
  request: ClientRequest,
  socket: Duplex,
  { account = new ReadingAccount(), isOfNode = false }: AnswerOptions,
): void {
  // Of Node's client, put there for this request just now.
  const parse = socket.listeners('data').at(-1) as ((piece: Buffer) => void) | undefined;
  if (parse === undefined) return;
  let answer: IncomingMessage | null = null;
  let rest: Buffer = Buffer.alloc(0);
  let hasEnded = false;
  const paced = new PacedSocket(socket, {
    account,
    isParsedWhole: (piece) => isOfNode && piece.length >= FREED_BYTES && !hasEnded && answer !== null,
    give(piece) {
      // Node's client has let go of what it could not read, and is to be told of nothing more.
      if (socket.destroyed) return piece.length;
      const isOnePiece = answer?.headers['content-length'] !== undefined;
      const slice = isOnePiece ? piece : piece.subarray(0, paced.sliceBytes);
      rest = piece.subarray(slice.length);
      parse.call(socket, slice);
      if (answer?.complete) end(rest.length > 0);
      return slice.length;
    },
  });
  socket.off('data', parse);
  const end = (hasMore: boolean): void => {
    hasEnded = true;
    paced.leave();
    // Nobody asked for it, and where the next answer would begin is not known.
    if (hasMore) socket.destroy();
    else paced.letGo();
  };
  request.prependOnceListener('response', (message) => {
    answer = message;
    paced.headCame(message, true);
  });
  request.once('close', () => paced.leave());
  // One that nobody waits for ends the connection.
  if (request.listenerCount('upgrade') === 0) return;
  request.prependOnceListener('upgrade', () => {
    paced.leave();
    // Whoever takes it over has what came before from the event, and puts it before this.
    if (rest.length > 0) socket.unshift(rest);
  });
}
