import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';

/** A thread of its own, in which it does no harm that Blob is another one. */
const program = `
  const { parentPort, workerData } = require('node:worker_threads');
  const Original = Blob;
  let pieces = 0;
  globalThis.Blob = class extends Original {
    constructor(given, options) {
      super(given, options);
      pieces += given.length;
    }
  };
  import(workerData.parser)
    .then(({ default: PostalMime }) => PostalMime.parse(workerData.mail))
    .then(({ text }) => parentPort.postMessage({ text, pieces }));
`;

test('the lines of a mail are joined as bytes, not in a Blob of its lines, which takes ten times as long as all the rest', async () => {
  const lines = Array.from({ length: 13_000 }, (_, line) => `Line ${line}, ünd möre.\n`).join('');
  const parser = import.meta.resolve('postal-mime');
  const mail = `From: a@example.com\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n${lines}`;
  const thread = new Worker(program, { eval: true, workerData: { parser, mail } });
  const [read] = (await once(thread, 'message')) as [{ text: string; pieces: number }];
  await thread.terminate();
  assert.equal(read.text, lines);
  assert.ok(
    read.pieces < 100,
    `${read.pieces} pieces; is patches/postal-mime applied? Run npm test, which does so.`,
  );
});
