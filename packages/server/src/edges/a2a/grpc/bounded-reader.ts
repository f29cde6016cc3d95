import { BinaryReader } from '@bufbuild/protobuf/wire';
import { limits } from '../../../domain/limits.ts';

/** A number in a list takes three reads, an empty value two, a name with its value up to nine, an object with these as many. */
const mostReads = 3 * limits.jsonValues;

export class TooManyFields extends Error {}

/** Reads the binary form of a message as far as it has about as many names and values as JSON may have. Throws `TooManyFields`. */
export class BoundedReader extends BinaryReader {
  constructor(bytes: Uint8Array) {
    super(bytes);
    // The codecs read tags and lengths by this alone, which is a property in the class above.
    const read = this.uint32;
    let left = mostReads;
    this.uint32 = () => {
      if (left === 0) throw new TooManyFields();
      left -= 1;
      return read.call(this);
    };
  }
}
