import { Worker } from 'node:worker_threads';
import { within } from '../../../domain/time-limit.ts';
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

/** A busy machine is no fault of the mail, but nobody's mail may be waited for without end. */
const PATIENCE = 6;

/**
 * Reads mail in a thread of its own, with a bound on its memory and on its processor time: a hostile mail costs nobody
 * else more than that. The thread starts with the first mail.
 * @param killMs processor time for one mail; it is given up after six times as long in any case
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

  function bound(reading: Waiting, thread: Worker, before: Promise<number | null>): void {
    const startedMs = performance.now();
    const look = async () => {
      const used = await usedMs(thread);
      if (reading !== current) return;
      const leftMs = killMs - (used === null ? killMs : used - ((await before) ?? 0));
      if (leftMs > 0 && performance.now() - startedMs < PATIENCE * killMs) return wait(leftMs);
      dropWorker();
      finish({ ok: false, reason: 'took_too_long' });
    };
    const wait = (ms: number) => {
      timer = setTimeout(() => void look(), Math.max(ms, killMs / 10));
    };
    wait(killMs);
  }

  function next(): void {
    if (current || isClosed) return;
    const waiting = queue.shift();
    if (!waiting) return;
    current = waiting;
    const isNew = worker === null;
    worker ??= start();
    bound(waiting, worker, isNew ? Promise.resolve(0) : usedMs(worker));
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

/** Processor time of a thread so far; null when it does not tell, as one that has ended. */
async function usedMs(thread: Worker): Promise<number | null> {
  try {
    const { user, system } = await within(5_000, thread.cpuUsage(), () => {
      throw new Error('The thread does not tell its time.');
    });
    return (user + system) / 1_000;
  } catch {
    return null;
  }
}
