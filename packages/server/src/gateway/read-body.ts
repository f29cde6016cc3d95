import type { IncomingMessage } from 'node:http';
import { WireError } from './wires.ts';

export const maxBodyBytes = 32 * 1024 * 1024;

/** Reads the whole body. Throws WireError when it is too large, compressed, or cut short. */
export function readBody(request: IncomingMessage, maxBytes = maxBodyBytes): Promise<Buffer> {
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') {
    throw new WireError('unsupported_encoding', 'Send the body without content-encoding.');
  }
  const tooLarge = new WireError('too_large', `The body may have at most ${maxBytes} bytes.`);
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge;
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxBytes) {
        request.pause();
        reject(tooLarge);
      } else chunks.push(chunk);
    });
    request.on('end', () => resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks)));
    request.on('error', reject);
    request.on('close', () => reject(new WireError('bad_request', 'The body was cut short.')));
  });
}
