import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { onSideEnded } from '../../domain/one-request.ts';

/** What tells that nobody is there comes back after the first probe, and closes the response at the one after that. */
const FIRST_PROBE_MS = 20;
/** A client that has given up waiting meanwhile is noticed after so long. */
const LAST_PROBE_MS = 15_000;

/** Sends something to the client of a half-closed connection, again and again, less and less often, until the end. */
export function probeUntilClosed(response: ServerResponse, probe: () => void): void {
  let waitMs = FIRST_PROBE_MS;
  let timer: NodeJS.Timeout | undefined;
  const again = () => {
    if (response.writableEnded || response.destroyed) return;
    probe();
    timer = setTimeout(again, waitMs).unref();
    waitMs = Math.min(waitMs * 2, LAST_PROBE_MS);
  };
  again();
  response.once('close', () => clearTimeout(timer));
}

/**
 * A client may end its side of the connection after its request and still wait for the answer (RFC 9293, section 3.6),
 * where Node would hang up. But from here a client that has gone altogether looks just the same, until something is sent
 * to it: then its machine says that nobody is there (RST), and the response is closed as ever. So that who waits for a
 * long answer is told of a client that has gone, a half-closed connection is sent an interim answer, which clients of
 * HTTP/1.1 pass over (RFC 9110, section 15.2). A client of 1.0 knows none; its end is taken for a leave, as it was.
 *
 * Returns what is to be told of each request, and what gives the answer to the last one of a connection.
 */
export function answerHalfClosed(server: Server): {
  answering(request: IncomingMessage, response: ServerResponse): void;
  answerOn(socket: Socket): ServerResponse | undefined;
} {
  (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;
  const answering = new WeakMap<Socket, ServerResponse>();
  server.on('connection', (socket: Socket) => {
    onSideEnded(socket, () => {
      const response = answering.get(socket);
      if (!response || response.writableEnded) return;
      if (response.req.httpVersion === '1.0') return void socket.destroy();
      probeUntilClosed(response, () => {
        if (!response.headersSent && response.socket !== null) response.writeProcessing();
      });
    });
  });
  return {
    answering: (request, response) => void answering.set(request.socket, response),
    answerOn: (socket) => answering.get(socket),
  };
}
