import type { Duplex } from 'node:stream';

/** For a client to read what it was sent. */
const sentMs = 10_000;
/** For a client to end its side, once all that it was sent has left. */
const closeMs = 2_000;

/**
 * Sends the last bytes of a connection that is no server's any more, and closes it whatever the client does. What still
 * comes is read and thrown away: a connection that is closed while it holds unread bytes is reset, and an answer on its
 * way is lost with it (RFC 9112, section 9.6).
 */
export function endSocket(socket: Duplex, bytes: string | Uint8Array): void {
  if (socket.destroyed) return;
  const cut = () => void socket.destroy();
  let timer = setTimeout(cut, sentMs).unref();
  socket.once('finish', () => {
    clearTimeout(timer);
    timer = setTimeout(cut, closeMs).unref();
  });
  socket.once('close', () => clearTimeout(timer));
  // Without anybody who hears it, a reset by the client would be an exception of the whole service.
  socket.on('error', cut);
  socket.end(bytes);
  socket.resume();
}
