import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { limits } from './limits.ts';

/** The answer to the last request of a connection that may go on. */
const answers = new WeakMap<Socket, ServerResponse>();
/** How many came behind one that was not answered: then the connection takes no other. */
const behind = new WeakMap<Socket, number>();

/**
 * Whether a request that Node's server tells of may go on; asked first, by every server that a sandbox reaches. Node parses
 * what a client sends behind a request at once, and tells of all of it before anything is answered, so that limits of
 * connections would limit nothing: here a connection has one request at a time. What came behind one that is not answered yet
 * is thrown away, and the connection closed after that answer; a client that pipelines must expect that, and sends again what
 * had no answer (RFC 9112, section 9.3.2). `response` is null for what takes over the connection (CONNECT, an upgrade).
 */
export function mayGoOn(message: IncomingMessage, response: ServerResponse | null): boolean {
  const { socket } = message;
  const before = answers.get(socket);
  const isAnswered = before === undefined || (before.writableEnded && before.shouldKeepAlive);
  if (isAnswered && !behind.has(socket)) {
    if (response) answers.set(socket, response);
    return true;
  }
  const count = (behind.get(socket) ?? 0) + 1;
  behind.set(socket, count);
  if (count === 1) endAfter(socket, before!);
  // Node keeps each until the connection is closed.
  if (count > limits.pipelinedRequests) socket.destroy();
  else message.resume();
  return false;
}

function endAfter(socket: Socket, answer: ServerResponse): void {
  if (answer.writableFinished) return void socket.destroySoon();
  // It says so to the client, when its head has not been sent.
  answer.shouldKeepAlive = false;
  answer.once('finish', () => socket.destroySoon());
  let bytes = 0;
  // When what has come by now is parsed. It is read on, since only so it is heard that the client has gone.
  process.nextTick(() => {
    socket.removeAllListeners('data');
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > limits.pipelinedBytes) socket.destroy();
    });
    socket.once('end', () => socket.destroy());
    socket.resume();
  });
}
