import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import type { BodyHold } from '../../domain/flight.ts';

/** RFC 6455, section 7.4.1: "Try Again Later", of the registry of codes. */
const tryAgainLater = 1013;
/** For which a client may read why it is let go; meanwhile nothing of it is read. */
const farewellMs = 1_000;
/** A frame of a client without its payload, when that is short: two bytes and the mask. */
const frameBytes = 6;

/** For whose message there is no room, it is let go. */
export function comeAgainLater(socket: WebSocket): void {
  socket.close(tryAgainLater, 'too many large messages are under way');
  socket.pause();
  setTimeout(() => socket.terminate(), farewellMs).unref();
}

/**
 * Counts what comes of a client's next message, which is put together where nobody looks, so that it counts before it is whole. A
 * client for whose message there is no room is let go: its id is not known yet. `connection` is what carries `socket`. Returns
 * what holds the bytes of the message that was just heard; they are to be dropped.
 */
export function assembly(socket: WebSocket, connection: Duplex, open: () => BodyHold): () => BodyHold {
  let next = open();
  let bytes = 0;
  const refuse = (): void => {
    connection.off('data', onData);
    comeAgainLater(socket);
  };
  const onData = (piece: Buffer): void => {
    bytes += piece.length;
    try {
      next.add(piece.length);
    } catch {
      refuse();
    }
  };
  // Answers to pings come for ever, and are of no message.
  const onControl = (data: Buffer): void => {
    const own = Math.min(bytes, frameBytes + data.length);
    bytes -= own;
    next.remove(own);
  };
  // Before the bytes make a message, so that they count for it.
  connection.prependListener('data', onData);
  socket.on('ping', onControl).on('pong', onControl);
  // What breaks the protocol is not put together any more.
  const end = (): void => {
    connection.off('data', onData);
    next.drop();
  };
  socket.once('error', end).once('close', end);
  return () => {
    const whole = next;
    next = open();
    bytes = 0;
    return whole;
  };
}
