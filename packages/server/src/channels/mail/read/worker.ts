import { parentPort } from 'node:worker_threads';
import type { MailInput, ReadResult } from './message.ts';
import { MailRefused, readText } from './read-text.ts';

/** One mail after another; what goes wrong with one ends with it. */
parentPort?.on('message', (input: MailInput) => {
  void readText(input)
    .then((mail): ReadResult => ({ ok: true, mail }))
    .catch((error: unknown): ReadResult => ({
      ok: false,
      reason: error instanceof MailRefused ? error.reason : 'unreadable',
    }))
    // A thread has no origin.
    // oxlint-disable-next-line unicorn/require-post-message-target-origin
    .then((result) => parentPort?.postMessage(result));
});
