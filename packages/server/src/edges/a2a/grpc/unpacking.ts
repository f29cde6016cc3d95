import { status as codes } from '@grpc/grpc-js';
import type { StatusObject } from '@grpc/grpc-js';
import type { BodyHold } from '../../../domain/flight.ts';
import { limits } from '../../../domain/limits.ts';

/** What a call of `grpc-js` makes of a message as it was framed, which the library keeps to itself; a test tells when it has another name. */
interface Unpacker {
  decompressMessage(framed: Buffer, encoding: string): Buffer | Promise<Buffer>;
}

/** What stands before each message: whether it is compressed, and its length. */
export const frameHeadBytes = 5;
/** Deflate makes at most so many bytes of one: 258 of two bits. */
const mostGrowth = 1032;

/**
 * Has a call hold what its message may become at most before it is unpacked, since its parts are gathered where nobody looks. They
 * are held until they are gathered, also when the client has gone meanwhile: that stops no unpacking. `refused` makes the status of
 * what `open` throws. A second message, which no operation takes, is not unpacked: many fit into what comes at once.
 */
export function boundUnpacking(
  call: object,
  open: () => BodyHold,
  refused: (error: unknown) => StatusObject,
): void {
  const unpacker = call as Unpacker;
  const unpack = unpacker.decompressMessage;
  let hasMessage = false;
  unpacker.decompressMessage = async (framed, encoding) => {
    if (hasMessage)
      // oxlint-disable-next-line no-throw-literal -- the library takes a status, not an error
      throw { code: codes.UNIMPLEMENTED, details: 'An operation takes one message.' };
    hasMessage = true;
    if (encoding === 'identity') return unpack.call(call, framed, encoding);
    const room = open();
    const sentBytes = framed.length - frameHeadBytes;
    try {
      // What was sent counts already.
      room.add(Math.min(limits.a2aBodyBytes, sentBytes * mostGrowth) - sentBytes);
    } catch (error) {
      throw refused(error);
    }
    try {
      return await unpack.call(call, framed, encoding);
    } finally {
      room.drop();
    }
  };
}
