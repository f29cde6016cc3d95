import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { limits } from '../../src/domain/limits.ts';
import type { Attachment, HttpReply } from '../../src/domain/ports/channel.ts';
import { createAttachments } from '../../src/services/attachments.ts';
import { TryLater } from '../../src/services/guarded-call.ts';
import { silentLog } from '../support/log.ts';

const to = { channelId: newId(), orgId: newId(), agentId: newId() };
const called = (name: string): Attachment => ({
  name,
  mediaType: 'text/plain',
  sizeBytes: null,
  content: {
    at: 'call',
    call: { method: 'GET', url: `https://files.example/${name}`, headers: {}, body: null, token: null },
  },
});
const reply = (status: number, body: Buffer, headers: [string, string][] = []): HttpReply => ({
  status,
  headers: new Map(headers),
  body,
});

/** Attachments that a provider gives as the test says. */
function attachmentsOf(give: () => HttpReply | Promise<HttpReply>) {
  const written: string[] = [];
  const files = {
    write: async (_writer: unknown, _agentId: string, { names }: { names: readonly Buffer[] }) => {
      written.push(String(names.at(-1)));
      return {} as never;
    },
  };
  const caller = { call: async () => give() };
  return { written, ...createAttachments({ caller, files, log: silentLog }) };
}

test('the files of one message have so many bytes together, and what goes beyond is told', async () => {
  const bytes = Buffer.alloc(limits.attachmentBytes - 1);
  const attachments = attachmentsOf(() => reply(200, bytes));
  const fit = Math.floor(limits.attachmentsBytes / bytes.length);
  const lines = await attachments.save(
    to,
    'sum',
    Array.from({ length: fit + 1 }, (_, at) => called(`${at}.txt`)),
  );
  assert.equal(attachments.written.length, fit);
  assert.match(lines.at(-1)!, /not there, it is too large/);
});

test('of all messages together so many files are fetched at once', async () => {
  const gate = Promise.withResolvers<void>();
  let [active, most] = [0, 0];
  const attachments = attachmentsOf(async () => {
    active += 1;
    most = Math.max(most, active);
    // All that may begin have begun when nobody is left who could.
    if (active === limits.attachmentsAtOnce) setImmediate(gate.resolve);
    await gate.promise;
    active -= 1;
    return reply(200, Buffer.from('x'));
  });
  const messages = Array.from({ length: limits.attachmentsAtOnce * 3 }, (_, at) =>
    attachments.save(to, `message ${at}`, [called('a.txt')]),
  );
  await Promise.all(messages);
  assert.equal(attachments.written.length, messages.length);
  assert.equal(most, limits.attachmentsAtOnce);
});

test('a file that a provider is asked for too often is waited for, and not for ever', async () => {
  const busy = attachmentsOf(() => reply(429, Buffer.alloc(0), [['retry-after', '60']]));
  const save = (patienceMs: number) => busy.save(to, 'busy', [called('a.txt')], patienceMs);
  await assert.rejects(
    save(limits.attachmentWaitMinutes * 60_000),
    (error) => error instanceof TryLater && error.isTooMany && error.afterMs === 60_000,
  );
  for (const patienceMs of [0, 59_000])
    assert.match((await save(patienceMs))[0]!, /not there, the provider answered with status 429/);
});
