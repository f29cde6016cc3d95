import type { IncomingMessage } from 'node:http';
import { WireError } from './wires.ts';

export const maxBodyBytes = 32 * 1024 * 1024;

/**
 * Reads the whole body. `onBytes` is told of each piece before it is kept and may refuse by throwing. Throws WireError
 * when the body is too large, compressed, or cut short.
 */
export function readBody(request: IncomingMessage, onBytes: (bytes: number) => void): Promise<Buffer> {
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') {
    throw new WireError('unsupported_encoding', 'Send the body without content-encoding.');
  }
  if (Number(request.headers['content-length'] ?? 0) > maxBodyBytes) throw tooLarge();
  return new Promise((resolve, reject) => {
    // Pieces may be of one byte each, and what lies around each would be held with it: so they are copied together.
    let held: Buffer = Buffer.alloc(0);
    let bytes = 0;
    const onData = (chunk: Buffer): void => {
      try {
        const end = bytes + chunk.length;
        if (end > maxBodyBytes) throw tooLarge();
        onBytes(chunk.length);
        // Most bodies are one piece, and are used as they are.
        if (bytes === 0) held = chunk;
        else {
          if (end > held.length) held = grown(held.subarray(0, bytes), end);
          chunk.copy(held, bytes);
        }
        bytes = end;
      } catch (error) {
        request.off('data', onData);
        reject(error as Error);
      }
    };
    request.on('data', onData);
    request.on('end', () => resolve(held.subarray(0, bytes)));
    request.on('error', reject);
    request.on('close', () => {
      if (!request.complete) reject(new WireError('bad_request', 'The body was cut short.'));
    });
  });
}

function grown(held: Buffer, bytes: number): Buffer {
  const larger = Buffer.allocUnsafeSlow(Math.min(Math.max(2 * held.length, bytes, 4096), maxBodyBytes));
  held.copy(larger);
  return larger;
}

function tooLarge(): WireError {
  return new WireError('too_large', `The body may have at most ${maxBodyBytes} bytes.`);
}
