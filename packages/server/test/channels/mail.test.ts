import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { completeMail } from '../../src/channels/mail/complete.ts';
import { createMailReader, type MailReader } from '../../src/channels/mail/read/mail-reader.ts';
import { createMailReaders } from '../../src/channels/mail/read/mail-readers.ts';
import { stripReply } from '../../src/channels/mail/strip-reply.ts';
import { outgoingMail, threadKeyOf } from '../../src/channels/mail/reply.ts';
import { receive } from '../../src/domain/receive.ts';
import { kinds } from '../../src/channels/kinds.ts';
import type { ChannelSetup } from '../../src/domain/ports/channel.ts';
import { channelId, nowMs, setupOf, signed } from './fixtures/fixture.ts';
import {
  address,
  mime,
  mimeFixture,
  multipart,
  sendgridFixture,
  sesFixture,
  signSns,
} from './fixtures/mail.ts';
import { serviceKeys } from './fixtures/tokens.ts';

const reader = createMailReader();
after(() => reader.close());

async function readRaw(
  raw: string | Buffer,
  over: Partial<ChannelSetup> = {},
  headers: Record<string, string> = {},
) {
  const setup = setupOf(mimeFixture, over);
  const request = signed(mimeFixture, { body: raw, headers: { 'X-Envelope-To': address, ...headers } });
  const received = receive(kinds.email, request, setup, nowMs, new Map());
  assert.equal(received.result, 'accepted');
  return completeMail(received.parsed.events[0]!, setup, reader);
}

async function eventOf(...given: Parameters<typeof readRaw>) {
  const completed = await readRaw(...given);
  assert.ok('event' in completed, JSON.stringify(completed));
  return completed.event;
}

test('the text of a mail is read out of any charset and transfer encoding', async () => {
  const head = (type: string) =>
    ['From: ada@example.com', `Content-Type: ${type}`, 'Content-Transfer-Encoding: 8bit', '', ''].join(
      '\r\n',
    );
  const cases: [string, Buffer, RegExp][] = [
    ['text/plain; charset=windows-1252', Buffer.from([0x93, 0x80, 0x94]), /“€”/],
    ['text/plain; charset=shift_jis', Buffer.from([0x83, 0x65, 0x83, 0x58, 0x83, 0x67]), /テスト/],
    ['text/plain; charset=koi8-r', Buffer.from([0xf0, 0xd2, 0xc9]), /При/],
    ['text/plain; charset=unknown-8bit', Buffer.from('plain'), /plain/],
    [
      'text/html; charset=utf-8',
      Buffer.from('<p>one</p><script>bad()</script><p>two <a href="https://x.example">link</a></p>'),
      /one\s+two link/,
    ],
  ];
  for (const [type, body, expected] of cases) {
    const event = await eventOf(Buffer.concat([Buffer.from(head(type)), body]));
    assert.match(event.text, expected, type);
    assert.doesNotMatch(event.text, /bad\(\)/);
  }
});

test('attachments come with names that are only names', async () => {
  const raw = [
    'From: ada@example.com',
    'MIME-Version: 1.0',
    'Content-Type: multipart/mixed; boundary="b1"',
    '',
    '--b1',
    'Content-Type: text/plain',
    '',
    'see file',
    '--b1',
    'Content-Type: application/pdf',
    'Content-Disposition: attachment; filename="../../etc/passwd"',
    'Content-Transfer-Encoding: base64',
    '',
    'aGVsbG8=',
    '--b1--',
    '',
  ].join('\r\n');
  const event = await eventOf(raw);
  assert.equal(event.text, 'see file');
  assert.equal(event.attachments.length, 1);
  const [file] = event.attachments;
  assert.equal(file!.content.at === 'inline' && file!.content.bytes.toString(), 'hello');
  assert.equal(file!.mediaType, 'application/pdf');
});

test('a mail bomb is refused before it is parsed, and the next mail is read', async () => {
  const part = '--b\r\nContent-Type: text/plain\r\n\r\nx\r\n';
  const bomb = `From: a@example.com\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n${part.repeat(20_000)}--b--\r\n`;
  assert.deepEqual(await readRaw(bomb), { problem: 'too_many_parts' });
  let nested = 'From: a@example.com\r\n';
  for (let depth = 0; depth < 60; depth += 1)
    nested += `Content-Type: multipart/mixed; boundary=b${depth}\r\n\r\n--b${depth}\r\n`;
  assert.deepEqual(await readRaw(nested), { problem: 'too_many_parts' });
  const deep = `From: a@example.com\r\nContent-Type: text/html\r\n\r\n${'<div>'.repeat(50_000)}deep`;
  await eventOf(deep);
  assert.equal((await eventOf(mime({}))).text, 'Question\n\nIs it up?');
});

test('300 KB of hostile reply text take less than a second', async () => {
  const lines = [
    'On On On On On On '.repeat(20_000),
    'On 1/1/2025 a@b wrote:\n'.repeat(12_000),
    '>'.repeat(300_000),
    'a@'.repeat(150_000),
    `${'From: x\n'.repeat(30_000)}`,
    `${' '.repeat(300_000)}:`,
  ];
  for (const text of lines) {
    const before = process.threadCpuUsage();
    stripReply(text.slice(0, 300_000));
    const { user, system } = process.threadCpuUsage(before);
    assert.ok(user + system < 1_000_000, text.slice(0, 20));
  }
  const event = await eventOf(`From: a@example.com\r\n\r\n${lines[1]}`);
  assert.ok(event.text.length > 0);
});

test('a reader that is stopped by a mail takes up the next one in a new thread', async () => {
  const impatient = createMailReader(1);
  // Large enough to outlast a millisecond on any machine.
  const slow = { form: 'fields' as const, text: null, html: '<p>a</p>'.repeat(100_000), stripped: null };
  const first = await impatient.read(slow);
  assert.deepEqual(first, { ok: false, reason: 'took_too_long' });
  await impatient.close();
  assert.deepEqual(await impatient.read(slow), { ok: false, reason: 'unreadable' });
  assert.equal((await eventOf(mime({}))).ignore, null);
});

test('the new part of a reply is kept, in many languages and styles', () => {
  const quote = '\n> Is it up?\n> Ada';
  const heads = [
    'On Thu, Oct 9, 2025 at 10:53 AM Ada <ada@example.com> wrote:',
    'On Thu, Oct 9, 2025 at 10:53 AM\nAda <ada@example.com> wrote:',
    'Am 09.10.2025 um 10:53 schrieb Ada <ada@example.com>:',
    'Le 09/10/2025 à 10:53, Ada a écrit :',
    'El 9/10/2025 a las 10:53, Ada escribió:',
    'Il 09/10/2025 10:53, Ada ha scritto:',
    'Em 09/10/2025 10:53, Ada escreveu:',
    'Op 09-10-2025 om 10:53 schreef Ada:',
    'W dniu 09.10.2025 o 10:53, Ada napisał:',
    '09.10.2025 10:53, Ada <ada@example.com> пишет:',
    '2025年10月9日(木) 10:53 Ada <ada@example.com>:',
    '2025-10-09 10:53 Ada <ada@example.com> 写道：',
  ];
  for (const head of heads)
    assert.equal(stripReply(`Yes, it is.\n\n${head}\n${quote}\n`), 'Yes, it is.', head);
  const outlook =
    'Yes.\n\nFrom: Ada <ada@example.com>\nSent: Thursday, 9 October 2025 10:53\nTo: Agent\nSubject: Question\n\nIs it up?';
  assert.equal(stripReply(outlook), 'Yes.');
  assert.equal(stripReply('Yes.\n\n-----Original Message-----\nIs it up?'), 'Yes.');
  assert.equal(stripReply('Yes.\n-- \nAda\nExample Ltd'), 'Yes.');
  assert.equal(stripReply('Yes.\n\nSent from my phone'), 'Yes.');
  const interleaved = 'On Thu, Oct 9, 2025 Ada <ada@example.com> wrote:\n> Is it up?\nYes.\n> And fast?\nNo.';
  assert.equal(stripReply(interleaved), interleaved);
  assert.equal(stripReply('From: this it follows that x.\nBye'), 'From: this it follows that x.\nBye');
  assert.equal(stripReply('> only a quote'), '> only a quote');
});

test('a reply is joined to its conversation by a token in the address and by message ids, never by its subject', async () => {
  const event = await eventOf(
    mime({}, [
      'In-Reply-To: <ours.1@berth.example>',
      'References: <first@example.com> <ours.1@berth.example>',
    ]),
    {},
    { 'X-Envelope-To': 'agent+tok123@berth.example' },
  );
  assert.deepEqual(event.threadKeys, ['token:tok123', 'mail:ours.1@berth.example', 'mail:first@example.com']);
  assert.equal(event.conversationKey, 'mail:q1@example.com');
  assert.deepEqual((await eventOf(mime({}))).threadKeys, []);
});

test('only allowed and, when asked for, vouched senders reach the agent', async () => {
  const settings = (over: object) => ({ settings: { ...setupOf(mimeFixture).settings, ...over } });
  assert.equal((await eventOf(mime({}), settings({ allowedSenders: ['@example.com'] }))).ignore, null);
  assert.equal(
    (await eventOf(mime({}), settings({ allowedSenders: ['bob@example.com'] }))).ignore,
    'sender_not_allowed',
  );
  const spoofed = mime({}).replace('Ada Lovelace <ada@example.com>', '"bob@example.com" <eve@evil.example>');
  assert.equal(
    (await eventOf(spoofed, settings({ allowedSenders: ['bob@example.com'] }))).ignore,
    'sender_not_allowed',
  );
  const strict = settings({ requireDmarcPass: true, authenticationServer: 'mx.berth.example' });
  assert.equal((await eventOf(mime({}), strict)).ignore, 'not_authenticated');
  const vouched = mime({}, ['Authentication-Results: mx.berth.example; dmarc=pass header.from=example.com']);
  assert.equal((await eventOf(vouched, strict)).ignore, null);
  const forged = mime({}, ['Authentication-Results: mx.evil.example; dmarc=pass']);
  assert.equal((await eventOf(forged, strict)).ignore, 'not_authenticated');
});

test('each field of SendGrid is read in its own charset', async () => {
  const setup = setupOf(sendgridFixture);
  const body = multipart({
    from: 'ada@example.com',
    text: Buffer.from([0xcf, 0xf0, 0xe8]),
    subject: Buffer.from('Grüße', 'latin1'),
    envelope: JSON.stringify({ to: [address], from: 'ada@example.com' }),
    charsets: JSON.stringify({ text: 'windows-1251', subject: 'iso-8859-1' }),
  });
  const received = receive(kinds.email, signed(sendgridFixture, { body }), setup, nowMs, new Map());
  assert.equal(received.result, 'accepted');
  const completed = await completeMail(received.parsed.events[0]!, setup, reader);
  assert.equal('event' in completed && completed.event.text, 'Grüße\n\nПри');
});

test('an answer continues the thread, is marked as automatic, and is found again by its own id', () => {
  const replyTo = {
    to: 'ada@example.com',
    subject: 'Question\r\nBcc: x@evil.example',
    messageId: 'q1@example.com',
    references: ['q0@example.com'],
  };
  const answer = { text: 'Yes.', replyTo, outboxId: channelId };
  const mail = outgoingMail(answer, setupOf(mimeFixture));
  const header = (name: string) => mail.headers.find(([given]) => given === name)?.[1];
  assert.equal(mail.subject, 'Re: Question Bcc: x@evil.example');
  assert.equal(header('In-Reply-To'), '<q1@example.com>');
  assert.equal(header('References'), '<q0@example.com> <q1@example.com>');
  assert.equal(header('Auto-Submitted'), 'auto-replied');
  assert.equal(header('X-Berth-Channel'), channelId);
  assert.equal(threadKeyOf(mail), `mail:berth.${channelId}@berth.example`);
  const providers: [string, Record<string, string>][] = [
    ['resend', { apiKey: 'k' }],
    ['postmark', { apiKey: 'k' }],
    ['mailgun', { apiKey: 'k' }],
    ['sendgrid', { apiKey: 'k' }],
    ['ses', { accessKeyId: 'AKIA', secretAccessKey: 's' }],
  ];
  for (const [sender, credentials] of providers) {
    const setup = setupOf(mimeFixture, {
      credentials,
      settings: { ...setupOf(mimeFixture).settings, sender },
    });
    const [step, ...more] = kinds.email.reply(answer, setup, nowMs);
    assert.equal(more.length, 0);
    const sent =
      sender === 'ses'
        ? Buffer.from(
            (JSON.parse(step!.call.body!) as { Content: { Raw: { Data: string } } }).Content.Raw.Data,
            'base64',
          ).toString()
        : decodeURIComponent(step!.call.body!.replaceAll('+', ' '));
    assert.match(sent, /auto-replied/, sender);
    assert.match(sent, /q1@example\.com/, sender);
    assert.doesNotMatch(sent, /^Bcc:/m, sender);
  }
});

test('a certificate of SNS comes from Amazon and from nowhere else', () => {
  const setup = setupOf(sesFixture);
  const urls = [
    'https://sns.eu-west-1.amazonaws.com.evil.example/x.pem',
    'https://evil.example/sns.eu-west-1.amazonaws.com/x.pem',
    'http://sns.eu-west-1.amazonaws.com/x.pem',
    'https://sns.eu-west-1.amazonaws.com:8443/x.pem',
    'https://user@sns.eu-west-1.amazonaws.com/x.pem',
    'https://sns.eu-west-1.amazonaws.com/x.txt',
    'https://bucket.s3.amazonaws.com/x.pem',
  ];
  const take = (url: string) => {
    const message = sesFixture.message({});
    const body = String(message.body).replace(
      'https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem',
      url,
    );
    const request = signSns({ ...message, body }, nowMs, serviceKeys.privateKey);
    return receive(
      kinds.email,
      { ...signed(sesFixture, request), body: Buffer.from(request.body) },
      setup,
      nowMs,
      new Map(),
    ).result;
  };
  for (const url of urls) assert.equal(take(url), 'forged', url);
  assert.equal(take('https://sns.us-gov-west-1.amazonaws.com/x.pem'), 'needs_document');
});

test('mail of one organisation that takes as long as it can holds up its own mail only, and is read in the order in which it came', async () => {
  const held: PromiseWithResolvers<void>[] = [];
  const read: string[] = [];
  const made: MailReader = {
    async read(input) {
      const text = input.form === 'fields' ? (input.text ?? '') : '';
      if (text.startsWith('bomb')) {
        const gate = Promise.withResolvers<void>();
        held.push(gate);
        await gate.promise;
      }
      read.push(text);
      return { ok: false, reason: 'took_too_long' };
    },
    close: async () => {},
  };
  const readers = createMailReaders(() => made);
  const send = (owner: string, text: string) =>
    readers.read(owner, { form: 'fields', text, html: null, stripped: null });
  const bombs = ['bomb 1', 'bomb 2', 'bomb 3'].map((text) => send('hostile', text));
  await send('one', 'first');
  await Promise.all([send('one', 'second'), send('other', 'third')]);
  assert.deepEqual([read, held.length], [['first', 'second', 'third'], 1]);
  for (let bomb = 0; bomb < 3; bomb += 1) {
    held[bomb]!.resolve();
    await bombs[bomb];
  }
  assert.deepEqual(read.slice(3), ['bomb 1', 'bomb 2', 'bomb 3']);
  await readers.close();
});
