import { status as codes } from '@grpc/grpc-js';

/** What a call of `grpc-js` makes of a message as it was framed, which the library keeps to itself; a test tells when it has another name. */
interface Unpacker {
  decompressMessage(framed: Buffer, encoding: string): Buffer | Promise<Buffer>;
}

/** What stands before each message: whether it is compressed, and its length. */
export const frameHeadBytes = 5;

/** What a message waits for, and what is done when it was unpacked. */
export interface Unpacking {
  /** Called when the message is whole, with how many bytes it was sent as. Resolves with the function that gives the place back; rejects with a status. */
  enter(sentBytes: number): Promise<() => void>;
  /** Counts the bytes of what was made; throws a status when there is no room. */
  hold(bytes: number): void;
}

/**
 * Has a call's message wait for a place before it is unpacked, since its parts are gathered where nobody looks: what is in the making is
 * bounded by the places, and what was made is held before the place is given on. The place is kept until the message is unpacked, also
 * when the client has gone meanwhile: that stops no unpacking. What waits counts as what was sent. A second message, which no operation
 * takes, is not unpacked: many fit into what comes at once.
 */
export function boundUnpacking(call: object, { enter, hold }: Unpacking): void {
  const unpacker = call as Unpacker;
  const unpack = unpacker.decompressMessage;
  let hasMessage = false;
  unpacker.decompressMessage = async (framed, encoding) => {
    if (hasMessage)
      // oxlint-disable-next-line no-throw-literal -- the library takes a status, not an error
      throw { code: codes.UNIMPLEMENTED, details: 'An operation takes one message.' };
    hasMessage = true;
    if (encoding === 'identity') return unpack.call(call, framed, encoding);
    const giveBack = await enter(framed.length);
    try {
      const made = await unpack.call(call, framed, encoding);
      hold(made.length);
      return made;
    } finally {
      giveBack();
    }
  };
}
