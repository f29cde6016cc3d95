import { Duplex } from 'node:stream';
import type { SandboxProcess } from '../../domain/ports/sandbox-control.ts';

/**
 * A connection to a server inside, over a stream of the control channel: its input and output. It ends when the server
 * has ended it, and fails when it was broken off, so that half an answer is never taken for a whole one.
 */
export class Connection extends Duplex {
  readonly #process: SandboxProcess;

  constructor(process: SandboxProcess) {
    super({ allowHalfOpen: true });
    this.#process = process;
    const { stdin, stdout } = process;
    stdout.on('data', (chunk: Buffer) => {
      if (!this.push(chunk)) stdout.pause();
    });
    stdout.pause();
    stdout.on('end', () => void process.exited.then(({ code }) => this.#over(code === 0)));
    stdin.on('error', () => undefined);
  }

  override _read(): void {
    this.#process.stdout.resume();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#process.stdin.write(chunk, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#process.stdin.end(() => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#process.stdin.destroy();
    this.#process.stdout.destroy();
    done(error);
  }

  #over(isWhole: boolean): void {
    if (this.destroyed) return;
    if (isWhole) this.push(null);
    else this.destroy(new Error('The connection was broken off.'));
  }
}
