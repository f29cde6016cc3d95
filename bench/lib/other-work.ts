import { once } from 'node:events';
import { Worker } from 'node:worker_threads';

export interface OtherWork {
  /** The share of the machine's processors, 0 to 1, that went to others since it was asked for. */
  end(): Promise<number>;
}

/** What else the machine does, looked at now and then by a thread of its own: the bench's main one is what measures. */
export async function watchOtherWork(): Promise<OtherWork> {
  const worker = new Worker(new URL('./other-work-thread.ts', import.meta.url));
  worker.unref();
  await once(worker, 'message');
  return {
    async end() {
      worker.postMessage('end', []);
      const [share] = (await once(worker, 'message')) as [number];
      await worker.terminate();
      return share;
    },
  };
}
