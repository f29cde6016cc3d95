import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createSmtpListener } from '../../src/channels/mail/smtp/listener.ts';
import { createArrivals } from '../../src/channels/mail/smtp/arrivals.ts';
import { DomainError } from '../../src/domain/errors.ts';
import { Flight } from '../../src/domain/flight.ts';
import { limits } from '../../src/domain/limits.ts';
import { openSmtp } from '../../src/open-smtp.ts';
import { createChannelStore } from '../../src/store/channels.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';
import { mime } from './fixtures/mail.ts';
import { dialogue } from './smtp-dialogue.ts';
import { channelWorld } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
let smtp: ReturnType<typeof openSmtp>;
let port: number;

before(async () => {
  world = await channelWorld();
  world.worker.start();
  const config = { host: '127.0.0.1', port: 0, name: 'berth.example', tls: null };
  smtp = openSmtp({
    config,
    channels: createChannelStore(world.db),
    inbox: world.inbox,
    log: silentLog,
  });
  port = (await smtp.start())!;
});
after(async () => {
  await smtp.close();
  await world.close();
});

/** The answers to RCPT and to the mail; the latter null when nobody takes it. */
async function deliver(raw: string, to: string[], { from = 'ada@example.com', at = port } = {}) {
  const talk = await dialogue(at);
  try {
    await talk.say('EHLO sender.example');
    const begun = await talk.say(`MAIL FROM:<${from}>`);
    const recipients: string[] = [];
    for (const address of to) recipients.push(await talk.say(`RCPT TO:<${address}>`));
    if (!recipients.some((line) => line.startsWith('250'))) return { begun, recipients, taken: null };
    assert.match(await talk.say('DATA'), /^354/);
    return { begun, recipients, taken: await talk.say(`${raw.replace(/^\./gm, '..')}\r\n.`) };
  } finally {
    talk.close();
  }
}

const smtpChannel = (address: string) =>
  world.service.create(world.owner, world.agentId, {
    kind: 'email',
    settings: { provider: 'smtp', address, sender: 'resend' },
    credentials: { apiKey: 're_1' },
    apiBaseUrl: 'http://127.0.0.1:9',
  });
const eventsOf = (channelId: string) => world.db.sql<
  { state: string; reason: string | null; run_id: string | null }[]
>`
  select state, reason, run_id from inbound_events where channel_id = ${channelId} order by id`;

test('a mail over SMTP is stored before it is answered with 250, becomes a turn, and a copy of it is the same event', async () => {
  const { channel } = await smtpChannel('Support@berth.example');
  const raw = mime({ id: '71' });
  const first = await deliver(raw, ['support+token@berth.example']);
  assert.match(first.taken!, /^250 /);
  assert.equal((await eventsOf(channel.id)).length, 1);
  assert.match((await deliver(raw, ['support+token@berth.example'])).taken!, /^250 /);
  await until('its turn has begun', async () => (await eventsOf(channel.id))[0]?.run_id != null);
  assert.equal((await eventsOf(channel.id)).length, 1);
});

test('nobody but the recipients that channels have is answered with 250, and a paused channel is nobody', async () => {
  const { channel } = await smtpChannel('here@berth.example');
  const { recipients, taken } = await deliver(mime({ id: '72' }), [
    'nobody@berth.example',
    'here@elsewhere.example',
    'here@berth.example',
  ]);
  assert.deepEqual(
    recipients.map((line) => line.slice(0, 3)),
    ['550', '550', '250'],
  );
  assert.match(taken!, /^250 /);
  await world.service.pause(world.owner, channel.id);
  assert.match((await deliver(mime({ id: '73' }), ['here@berth.example'])).recipients[0]!, /^550 /);
});

test('an address belongs to one channel', async () => {
  await smtpChannel('one@berth.example');
  const isConflict = (error: unknown) => error instanceof DomainError && error.code === 'conflict';
  await assert.rejects(smtpChannel('ONE@berth.example'), isConflict);
});

test('bounces, automatic answers and mail that goes round in circles start nothing', async () => {
  const { channel } = await smtpChannel('loops@berth.example');
  const to = ['loops@berth.example'];
  await deliver(mime({ id: '74' }), to, { from: '' });
  await deliver(mime({ id: '75' }, ['Auto-Submitted: auto-replied']), to);
  const hops = Array.from({ length: limits.smtpHops + 1 }, (_, hop) => `Received: from ${hop}.example`);
  assert.match((await deliver(mime({ id: '76' }, hops), to)).taken!, /^554 5\.4\.6/);
  await until('both are settled', async () => {
    const rows = await eventsOf(channel.id);
    return rows.length === 2 && rows.every(({ state }) => state === 'ignored');
  });
  assert.deepEqual(
    (await eventsOf(channel.id)).map(({ reason }) => reason),
    ['bounce', 'auto_reply'],
  );
});

test('a channel of SMTP takes nothing over HTTP', async () => {
  const { channel } = await smtpChannel('closed@berth.example');
  const headers = new Map([['content-type', 'message/rfc822']]);
  const request = { method: 'POST', url: 'https://x/', headers, body: Buffer.from(mime({ id: '77' })) };
  await assert.rejects(
    world.inbox.receive('email', channel.id, request),
    (error: unknown) => error instanceof DomainError && error.code === 'signature_invalid',
  );
});

test('a mail for which there is no room is to be sent again, and one that is too large never', async (t) => {
  let failure: DomainError | null = new DomainError('queue_full', 'Full.', { retryAfterSeconds: 5 });
  const taken: number[] = [];
  const listener = createSmtpListener({
    host: '127.0.0.1',
    port: 0,
    name: 'berth.example',
    tls: null,
    log: silentLog,
    inbox: {
      channelOf: async (address) => {
        if (address.startsWith('away')) throw new Error('The database is away.');
        return { id: 'channel', orgId: 'org' };
      },
      async take(_channelId, { body }) {
        if (failure) throw failure;
        taken.push(body.length);
      },
    },
  });
  const at = await listener.listen();
  t.after(() => listener.close());
  assert.match((await deliver('Subject: x\r\n\r\nx', ['a@b.example'], { at })).taken!, /^451 4\.3\.2/);
  assert.match((await deliver('x', ['away@b.example'], { at })).recipients[0]!, /^451 4\.3\.2/);
  failure = null;
  const line = `${'x'.repeat(998)}\r\n`;
  const large = `Subject: x\r\n\r\n${line.repeat(Math.ceil(limits.smtpMessageBytes / line.length) + 1)}`;
  assert.match((await deliver(large, ['a@b.example'], { at })).taken!, /^552 5\.3\.4/);
  const many = Array.from({ length: limits.smtpRecipients + 1 }, (_, index) => `a${index}@b.example`);
  assert.match((await deliver('x', many, { at })).recipients.at(-1)!, /^452 /);
  // Once for each recipient that it has room for.
  assert.equal(taken.length, limits.smtpRecipients);
});

test('one remote address has so many connections at once, and so many mails in a minute', () => {
  let nowMs = 1_000_000;
  const arrivals = createArrivals(() => nowMs);
  const opened = Array.from({ length: limits.smtpConnectionsPerAddress + 1 }, (_, index) =>
    arrivals.open(`s${index}`, '192.0.2.1'),
  );
  assert.equal(opened.filter(Boolean).length, limits.smtpConnectionsPerAddress);
  assert.ok(arrivals.open('other', '192.0.2.2'));
  arrivals.close('s0');
  assert.ok(arrivals.open('again', '192.0.2.1'));
  const mails = () =>
    Array.from({ length: limits.smtpMailsPerMinute * 2 }, () => arrivals.takeMail('192.0.2.1')).filter(
      Boolean,
    ).length;
  assert.equal(mails(), limits.smtpMailsPerMinute);
  nowMs += 60_000;
  assert.equal(mails(), limits.smtpMailsPerMinute);
});

test('a mail bomb over SMTP is taken, ends as failed without a turn, and the next mail is answered', async () => {
  const { channel } = await smtpChannel('bomb@agents.example');
  const part = '--b\r\nContent-Type: text/plain\r\n\r\nx\r\n';
  const head = 'From: eve@example.com\r\nMessage-ID: <bomb@example.com>\r\n';
  const bomb = `${head}Content-Type: multipart/mixed; boundary=b\r\n\r\n${part.repeat(20_000)}--b--`;
  assert.match((await deliver(bomb, ['bomb@agents.example'])).taken!, /^250/);
  assert.match((await deliver(mime({ id: 'after-the-bomb' }), ['bomb@agents.example'])).taken!, /^250/);
  const [first, second] = await until('both are dealt with', async () => {
    const rows = await eventsOf(channel.id);
    return rows.length === 2 && rows[0]!.state !== 'queued' && rows[1]!.run_id !== null ? rows : null;
  });
  assert.deepEqual([first!.state, first!.run_id], ['failed', null]);
  assert.match(first!.reason!, /too_many_parts/);
  assert.notEqual(second!.run_id, null);
});

test('mails that are being read together have so much memory, and one beyond it is to be sent again', async (t) => {
  const room = Promise.withResolvers<void>();
  const large = `Subject: x\r\n\r\n${`${'x'.repeat(98)}\r\n`.repeat(300)}`;
  const bytes = Buffer.byteLength(`${large}\r\n`);
  let reading = 0;
  const listener = createSmtpListener({
    host: '127.0.0.1',
    port: 0,
    name: 'berth.example',
    tls: null,
    log: silentLog,
    // Two are in it, and then there is none for a third.
    bodies: new Flight({ smallBytes: 0, ofOrg: 2 * bytes, ofAll: 2 * bytes }),
    inbox: {
      channelOf: async () => ({ id: 'channel', orgId: 'org' }),
      async take() {
        reading += 1;
        await room.promise;
      },
    },
  });
  const at = await listener.listen();
  t.after(() => listener.close());
  t.after(() => room.resolve());
  const held = [1, 2].map(() => deliver(large, ['a@b.example'], { at }));
  await until('both are read', () => reading === 2);
  assert.match((await deliver(large, ['a@b.example'], { at })).taken!, /^451 4\.3\.2/);
  room.resolve();
  for (const { taken } of await Promise.all(held)) assert.match(taken!, /^250/);
  assert.match((await deliver(large, ['a@b.example'], { at })).taken!, /^250/);
});

test('mails to one organisation take the room of no other, and small ones are taken always', async (t) => {
  const bodies = new Flight({ smallBytes: 1_000, ofOrg: 40_000, ofAll: 100_000 });
  const listener = createSmtpListener({
    host: '127.0.0.1',
    port: 0,
    name: 'berth.example',
    tls: null,
    log: silentLog,
    bodies,
    inbox: {
      // The organisation is the first letter.
      channelOf: async (address) => ({ id: address, orgId: address[0]! }),
      take: async () => undefined,
    },
  });
  const at = await listener.listen();
  t.after(() => listener.close());
  const large = `Subject: x\r\n\r\n${`${'x'.repeat(98)}\r\n`.repeat(300)}`;
  const taken = async (to: string[], raw = large) => (await deliver(raw, to, { at })).taken!;
  const held = bodies.open('a');
  held.add(20_000);
  assert.match(await taken(['a1@x.example']), /^451 4\.3\.2/);
  assert.match(await taken(['a1@x.example', 'b1@x.example']), /^451 4\.3\.2/);
  assert.match(await taken(['a1@x.example'], 'Subject: x\r\n\r\nx'), /^250/);
  assert.match(await taken(['b1@x.example']), /^250/);
  held.drop();
  assert.match(await taken(['a1@x.example']), /^250/);
  assert.equal(bodies.bytes, 0);
});

test('an organisation has a quarter of the memory for mails, in which the largest mail has room', () => {
  const { ofOrg, ofAll } = limits.smtpBodies;
  assert.deepEqual([ofOrg * 4, ofAll], [ofAll, 128 * 1024 * 1024]);
  assert.ok(ofOrg > limits.smtpMessageBytes);
});
