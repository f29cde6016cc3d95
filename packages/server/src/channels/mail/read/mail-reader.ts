import { Worker } from 'node:worker_threads';
import { mailLimits, type MailInput, type ReadResult } from './message.ts';

export interface MailReader {
  /** Never rejects: what cannot be read says why. One at a time, in the order asked. */
  read(input: MailInput): Promise<ReadResult>;
  close(): Promise<void>;
}

interface Waiting {
  input: MailInput;
  done: (result: ReadResult) => void;
}

/**
 * Reads mail in a thread of its own, with a bound on its memory and a timer that ends it: a hostile mail costs nobody
 * else more than that. The thread starts with the first mail.
 */
export function createMailReader(killMs: number = mailLimits.killMs): MailReader {
  const queue: Waiting[] = [];
  let worker: Worker | null = null;
  let current: Waiting | null = null;
  let timer: NodeJS.Timeout | null = null;
  let isClosed = false;

  function finish(result: ReadResult): void {
    if (timer) clearTimeout(timer);
    timer = null;
    const { done } = current ?? { done: () => {} };
    current = null;
    done(result);
    next();
  }

  function dropWorker(): void {
    const old = worker;
    worker = null;
    void old?.terminate();
  }

  function start(): Worker {
    const made = new Worker(new URL('worker.ts', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: mailLimits.heapMiB, maxYoungGenerationSizeMb: 32 },
      // Nothing of the service's secrets is for this thread.
      env: {},
      stdout: true,
      stderr: true,
    });
    made.unref();
    made.on('message', (result: ReadResult) => {
      if (made === worker && current) finish(result);
    });
    // Out of memory, or a bug in a parser: the mail is to blame, the next one gets a new thread.
    const onEnd = () => {
      if (made !== worker) return;
      worker = null;
      if (current) finish({ ok: false, reason: 'unreadable' });
    };
    made.on('error', onEnd);
    made.on('exit', onEnd);
    return made;
  }

  function next(): void {
    if (current || isClosed) return;
    const waiting = queue.shift();
    if (!waiting) return;
    current = waiting;
    worker ??= start();
    timer = setTimeout(() => {
      dropWorker();
      finish({ ok: false, reason: 'took_too_long' });
    }, killMs);
    // A thread has no origin.
    // oxlint-disable-next-line unicorn/require-post-message-target-origin
    worker.postMessage(waiting.input);
  }

  return {
    read: (input) =>
      new Promise((done) => {
        if (isClosed) return done({ ok: false, reason: 'unreadable' });
        queue.push({ input, done });
        next();
      }),
    async close() {
      isClosed = true;
      const old = worker;
      worker = null;
      const left = [...(current ? [current] : []), ...queue.splice(0)];
      if (timer) clearTimeout(timer);
      current = null;
      for (const { done } of left) done({ ok: false, reason: 'unreadable' });
      await old?.terminate();
    },
  };
}
