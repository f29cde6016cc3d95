import type { IncomingMessage } from 'node:http';
import { GrowingBytes } from '../domain/growing-bytes.ts';
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
    const held = new GrowingBytes(maxBodyBytes);
    const onData = (chunk: Buffer): void => {
      try {
        if (held.length + chunk.length > maxBodyBytes) throw tooLarge();
        onBytes(chunk.length);
        held.add(chunk);
      } catch (error) {
        request.off('data', onData);
        reject(error as Error);
      }
    };
    request.on('data', onData);
    request.on('end', () => resolve(held.whole()));
    request.on('error', reject);
    request.on('close', () => {
      if (!request.complete) reject(new WireError('bad_request', 'The body was cut short.'));
    });
  });
}

function tooLarge(): WireError {
  return new WireError('too_large', `The body may have at most ${maxBodyBytes} bytes.`);
}
