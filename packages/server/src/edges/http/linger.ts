import type { IncomingMessage, ServerResponse } from 'node:http';

/** More than any refused body that a well-meant client would go on sending. */
const maxBytes = 64 * 1024 * 1024;
const maxMs = 2_000;
/** A client that sends nothing for so long has stopped to. */
const idleMs = 250;

/**
 * A connection that is closed while it holds unread bytes is reset, and an answer that is still on its way is lost with
 * it: the client of a refused upload would see no 413 but a broken connection (RFC 9112, section 9.6). So what still
 * comes is read and thrown away for a while, after the answer was sent and before the connection is closed. Connections
 * that are kept need none of this.
 */
export function lingerBeforeClose(request: IncomingMessage, response: ServerResponse): void {
  if (!/close/i.test(request.headers.connection ?? '') && request.httpVersion !== '1.0') return;
  const end = response.end.bind(response) as (callback?: () => void) => ServerResponse;
  const endWith = response.end.bind(response) as (...args: unknown[]) => ServerResponse;
  response.end = ((...args: unknown[]) => {
    if (request.complete || request.destroyed) return endWith(...args);
    const callback = args.find((arg) => typeof arg === 'function') as (() => void) | undefined;
    const [chunk, encoding] = args;
    if (typeof chunk === 'string') {
      response.write(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8');
    } else if (chunk instanceof Uint8Array) response.write(chunk);
    discard(request, () => end(callback));
    return response;
  }) as ServerResponse['end'];
}

/** Calls back when nothing comes any more, or enough has. */
function discard(request: IncomingMessage, onDone: () => void): void {
  const begunMs = performance.now();
  let bytes = 0;
  let seenBytes = 0;
  let isOver = false;
  const done = () => {
    if (isOver) return;
    isOver = true;
    clearTimeout(timer);
    request.off('data', onData).off('end', done).off('close', done).off('error', done);
    onDone();
  };
  const onData = (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > maxBytes) done();
  };
  const look = () => {
    if (isOver) return;
    if (bytes === seenBytes || performance.now() - begunMs > maxMs) return done();
    seenBytes = bytes;
    timer = wait();
  };
  // A process that was not let run meanwhile reads what has come before it looks.
  const wait = () => setTimeout(() => setImmediate(look), idleMs);
  let timer = wait();
  request.on('data', onData).on('end', done).on('close', done).on('error', done);
}
