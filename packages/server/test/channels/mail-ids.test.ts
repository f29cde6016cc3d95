import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { providerStandIn } from '../support/provider-stand-in.ts';
import { until } from '../support/until.ts';
import { hookUrl, json, signed } from './fixtures/fixture.ts';
import { mime, postmarkFixture } from './fixtures/mail.ts';
import { channelWorld } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
let provider: Awaited<ReturnType<typeof providerStandIn>>;
before(async () => {
  provider = await providerStandIn(() => ({ body: { id: 'sent-1' } }));
  world = await channelWorld();
  world.worker.start();
});
after(async () => {
  await world?.close();
  await provider?.close();
});

let boxes = 0;

/** A channel that the service's own listener hands mail to, and how many turns and answers those mails had in the end. */
async function mailbox(settings: Record<string, string | boolean> = {}) {
  // An address belongs to one channel.
  const address = `agent-${(boxes += 1)}@berth.example`;
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'email',
    settings: { provider: 'smtp', address, sender: 'resend', ...settings },
    credentials: { apiKey: 're_1' },
    apiBaseUrl: provider.url,
  });
  const before = provider.calls.length;
  return {
    take: (raw: string) =>
      world.inbox.take('email', channel.id, {
        method: 'POST',
        url: hookUrl,
        headers: new Map([
          ['content-type', 'message/rfc822'],
          ['x-envelope-from', 'ada@example.com'],
          ['x-envelope-to', address],
        ]),
        body: Buffer.from(raw),
      }),
    async outcome() {
      const rows = await until('every mail is settled', async () => {
        const found = await world.db.sql<{ state: string; reason: string | null; run_id: string | null }[]>`
          select state, reason, run_id from inbound_events where channel_id = ${channel.id} order by id`;
        return found.every(({ state }) => !['queued', 'processing'].includes(state)) ? found : null;
      });
      return {
        turns: new Set(rows.flatMap(({ run_id }) => run_id ?? [])).size,
        answers: provider.calls.length - before,
        states: rows.map(({ state, reason }) => reason ?? state),
      };
    },
  };
}

test('mails of several senders, or of one at several times, that bear the same id are several mails', async () => {
  const box = await mailbox();
  await box.take(mime({ id: '1' }));
  await box.take(mime({ id: '1' }).replaceAll('ada@example.com', 'bob@example.com'));
  await box.take(mime({ id: '1', text: 'And now?' }).replace('08:53:19', '09:00:00'));
  assert.deepEqual(await box.outcome(), { turns: 3, answers: 3, states: ['done', 'done', 'done'] });
});

test('copies of one mail that came through other servers have one turn, with an id and without', async () => {
  const box = await mailbox();
  const received = 'Received: from relay.example by mx.example; Thu, 09 Oct 2025 08:53:20 +0000\r\n';
  for (const raw of [mime({ id: '1' }), mime({ id: '2', text: 'Other' }).replace(/Message-ID: .*\r\n/, '')]) {
    await Promise.all([raw, received + raw, raw].map((copy) => box.take(copy)));
  }
  const { turns, answers } = await box.outcome();
  assert.deepEqual({ turns, answers }, { turns: 2, answers: 2 });
});

test('a forged copy of a mail that comes first does not keep the mail from being heard', async () => {
  const box = await mailbox({ requireDmarcPass: true, authenticationServer: 'mx.example' });
  const raw = mime({ id: '1' });
  await box.take(`Authentication-Results: mx.example; dmarc=fail\r\n${raw}`);
  await box.take(`Authentication-Results: mx.example; dmarc=pass\r\n${raw}`);
  await box.take(`Authentication-Results: mx.example; dmarc=pass\r\n${raw}`);
  assert.deepEqual(await box.outcome(), { turns: 1, answers: 1, states: ['not_authenticated', 'done'] });
});

test('several senders may bear the same id also where it is not written as the standard says', async () => {
  const box = await mailbox();
  const raw = mime({ id: '1' }).replace('<q1@example.com>', 'q1');
  await box.take(raw.replaceAll('ada@example.com', 'bob@example.com'));
  await box.take(raw);
  await box.take(`Authentication-Results: mx2.example; dmarc=none\r\n${raw}`);
  const { turns, answers } = await box.outcome();
  assert.deepEqual({ turns, answers }, { turns: 2, answers: 2 });
});

test('copies of a mail without an id have one turn, whatever each server says of its sender; a forged one counts for nothing', async () => {
  const raw = mime({ id: '1' }).replace(/Message-ID: .*\r\n/, '');
  const through = (server: string, verdict: string) =>
    `Authentication-Results: ${server}; dmarc=${verdict}\r\n${raw}`;
  const open = await mailbox();
  await open.take(through('mx1.example', 'pass'));
  await open.take(through('mx2.example', 'pass'));
  await open.take(through('mx2.example', 'pass').replace('08:53:19', '08:53:20'));
  const { turns, answers } = await open.outcome();
  assert.deepEqual({ turns, answers }, { turns: 2, answers: 2 });
  const strict = await mailbox({ requireDmarcPass: true, authenticationServer: 'mx1.example' });
  await strict.take(through('mx1.example', 'fail'));
  await strict.take(through('mx1.example', 'pass'));
  assert.deepEqual(await strict.outcome(), { turns: 1, answers: 1, states: ['not_authenticated', 'done'] });
});

test('mails that Postmark hands on are told from each other by their dates too', async () => {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'email',
    settings: postmarkFixture.settings,
    credentials: postmarkFixture.credentials,
    apiBaseUrl: provider.url,
  });
  const deliver = (id: string, date: string) => {
    const { body } = postmarkFixture.message({ id: '1' });
    const told = { ...(JSON.parse(String(body)) as object), MessageID: id, Date: date };
    return world.inbox.receive('email', channel.id, signed(postmarkFixture, json(told)));
  };
  await deliver('first', 'Thu, 9 Oct 2025 08:53:19 +0000');
  await deliver('again', 'Thu, 9 Oct 2025 10:53:19 +0200');
  await deliver('other', 'Fri, 10 Oct 2025 08:53:19 +0000');
  const states = await until('every mail is settled', async () => {
    const rows = await world.db.sql<{ state: string }[]>`
      select state from inbound_events where channel_id = ${channel.id} order by id`;
    const found = rows.map(({ state }) => state);
    return found.every((state) => state === 'done' || state === 'duplicate') ? found : null;
  });
  assert.deepEqual(states, ['done', 'duplicate', 'done']);
});
