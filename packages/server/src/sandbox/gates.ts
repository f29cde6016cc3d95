import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { closeSync, constants, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Made by one program, and then no more until half of them are used. */
const AT_ONCE = 8;

/** What a sandbox waits at until its limits are set. */
export interface Gate {
  /** For bwrap's `--block-fd`. */
  fd: number;
  open(): void;
  /** Whoever waits at it waits for ever. May be repeated, and follow `open`. */
  close(): void;
}

/**
 * bwrap takes the end of what it waits at for the word to go on, and so would run a program without limits when the
 * service is killed meanwhile. A named pipe that is open for reading and writing has no end: who waits at it holds its
 * other side too.
 */
export class Gates {
  readonly #folder: string;
  readonly #made: number[] = [];
  #making: Promise<void> | null = null;
  #isClosed = false;

  /** The pipes are made in the folder, and are not found there any more. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  async take(): Promise<Gate> {
    while (this.#made.length === 0) await this.#make();
    const fd = this.#made.pop()!;
    // Whoever comes next finds them; that it failed, whoever needs one learns.
    if (this.#made.length < AT_ONCE / 2) this.#make().catch(() => undefined);
    return gateOf(fd);
  }

  close(): void {
    this.#isClosed = true;
    for (const fd of this.#made.splice(0)) closeSync(fd);
  }

  #make(): Promise<void> {
    return (this.#making ??= this.#makeNow().finally(() => (this.#making = null)));
  }

  async #makeNow(): Promise<void> {
    const paths = Array.from({ length: AT_ONCE }, () => join(this.#folder, `gate-${randomUUID()}`));
    try {
      await promisify(execFile)('/usr/bin/mkfifo', ['--mode=600', '--', ...paths], {
        env: { LC_ALL: 'C' },
      });
      for (const path of paths) {
        // With both sides in one descriptor nothing is waited for.
        const fd = openSync(path, constants.O_RDWR);
        if (this.#isClosed) closeSync(fd);
        else this.#made.push(fd);
      }
      if (this.#isClosed) throw new Error('The driver is closed.');
    } finally {
      for (const path of paths) rmSync(path, { force: true });
    }
  }
}

function gateOf(fd: number): Gate {
  let isOpen = true;
  const close = (): void => {
    if (isOpen) closeSync(fd);
    isOpen = false;
  };
  return {
    fd,
    open: () => {
      if (isOpen) writeSync(fd, 'x');
      close();
    },
    close,
  };
}
