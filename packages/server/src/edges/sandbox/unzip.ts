import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { invalidRequest } from '../http/validate.ts';

/** Whoever takes it counts what comes out: a small body can hold very much. */
export async function* unzipped(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const input = Readable.from(source, { objectMode: false });
  const gunzip = createGunzip();
  // What went wrong with the upload is worth more than that the archive ended early for it.
  let failure: unknown = null;
  input.once('error', (error) => {
    failure = error;
    gunzip.destroy();
  });
  try {
    for await (const piece of input.pipe(gunzip)) yield piece as Buffer;
  } catch (error) {
    if (failure !== null) throw failure;
    const { code } = error as NodeJS.ErrnoException;
    if (code?.startsWith('Z_') || code === 'ERR_STREAM_PREMATURE_CLOSE')
      throw invalidRequest([{ path: 'body', message: 'it is no gzip, or is damaged' }]);
    throw error;
  } finally {
    input.destroy();
    gunzip.destroy();
  }
}
