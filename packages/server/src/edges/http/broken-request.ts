import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { newId } from '../../domain/ids.ts';
import { endSocket } from './end-socket.ts';

/** What is known about the connection of a request that could not be read. */
export interface BrokenConnection {
  socket: Socket;
  /** To the request that was read last, if there was one. */
  answer: ServerResponse | undefined;
}

/**
 * What is no HTTP has no request object; the answer is written to the bare socket, after those of the requests that came
 * before. An answer to the broken request itself that has begun is cut, for there is no place for another one.
 */
export function refuseBroken(code: string | undefined, { socket, answer }: BrokenConnection): void {
  if (!socket.writable || code === 'ECONNRESET') return void socket.destroy();
  const refuse = () => {
    if (socket.writable) endSocket(socket, bareAnswer(...malformed(code)));
  };
  if (!answer || answer.writableFinished || answer.destroyed) return refuse();
  if (answer.req.complete) return void answer.once('close', refuse);
  if (answer.headersSent) endSocket(socket, '');
  else refuse();
}

/** An answer in full to a request that no server answers. */
export function bareAnswer(status: string, text: string): string {
  const body = JSON.stringify({ error: text, code: 'invalid_request' });
  return (
    `HTTP/1.1 ${status}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
    `X-Request-Id: ${newId()}\r\nConnection: close\r\n\r\n${body}`
  );
}

function malformed(code: string | undefined): [status: string, text: string] {
  if (code === 'HPE_HEADER_OVERFLOW') {
    return ['431 Request Header Fields Too Large', 'The header fields of the request are too large.'];
  }
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return ['408 Request Timeout', 'The request did not arrive in time.'];
  return ['400 Bad Request', 'The request is not valid HTTP.'];
}
