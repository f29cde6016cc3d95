import { PassThrough, type Duplex, type Readable } from 'node:stream';

const HEADER_BYTES = 8;
const STDERR = 2;

export interface Outputs {
  stdout: PassThrough;
  stderr: PassThrough;
  /**
   * From now on what nobody reads is dropped, and holds the program back no longer. Docker does not end a container as long
   * as somebody is attached who does not read.
   */
  drop(): void;
}

/**
 * Takes apart what an engine sends of a program without a terminal: frames of an eight-byte header (the first byte says
 * which output, the last four the length) and the bytes. Both end with the source.
 */
export function takeApart(source: Readable): Outputs {
  let isDropping = false;
  const outputs: Outputs = {
    stdout: new PassThrough(),
    stderr: new PassThrough(),
    drop() {
      isDropping = true;
      source.resume();
    },
  };
  let header = Buffer.alloc(0);
  let left = 0;
  let target = outputs.stdout;
  source.on('data', (given: Buffer) => {
    let chunk = given;
    while (chunk.length > 0) {
      if (left === 0) {
        const missing = HEADER_BYTES - header.length;
        header = Buffer.concat([header, chunk.subarray(0, missing)]);
        chunk = chunk.subarray(missing);
        if (header.length < HEADER_BYTES) return;
        target = header[0] === STDERR ? outputs.stderr : outputs.stdout;
        left = header.readUInt32BE(4);
        header = Buffer.alloc(0);
        continue;
      }
      const part = chunk.subarray(0, left);
      chunk = chunk.subarray(part.length);
      left -= part.length;
      if (isDropping && target.writableNeedDrain) continue;
      if (!target.write(part) && !isDropping) holdUntilDrained(source, target);
    }
  });
  const end = (): void => {
    outputs.stdout.end();
    outputs.stderr.end();
  };
  source.on('end', end);
  source.on('close', end);
  source.on('error', end);
  return outputs;
}

function holdUntilDrained(source: Readable, target: PassThrough): void {
  source.pause();
  target.once('drain', () => source.resume());
}

/** The input of an attached program: its end closes the program's input and leaves the outputs open. */
export function inputOf(socket: Duplex): PassThrough {
  const stdin = new PassThrough();
  stdin.pipe(socket);
  socket.on('error', () => stdin.unpipe(socket));
  socket.on('close', () => {
    stdin.unpipe(socket);
    stdin.resume();
  });
  return stdin;
}
