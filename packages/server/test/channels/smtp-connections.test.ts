import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import type { SmtpConfig } from '../../src/config-smtp.ts';
import { limits } from '../../src/domain/limits.ts';
import { openSmtp } from '../../src/open-smtp.ts';
import { selfSigned } from '../support/certificate.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';
import { dialogue, type Dialogue } from './smtp-dialogue.ts';

const name = 'mail.berth.example';
let folder: string;
let tls: NonNullable<SmtpConfig['tls']>;
let ca: Buffer;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'smtp-connections-'));
  tls = selfSigned(folder, name);
  ca = readFileSync(tls.certFile);
});
after(() => rm(folder, { recursive: true, force: true }));

/** A listener that takes everything for `taken@berth.example`, and connections to it; all go with the test. */
async function listening(t: TestContext, secured: SmtpConfig['tls']) {
  const taken: { from: string; body: string }[] = [];
  const talks: Dialogue[] = [];
  const smtp = openSmtp({
    config: { host: '127.0.0.1', port: 0, name, tls: secured },
    channels: {
      ofMailAddress: async (address) =>
        address === 'taken@berth.example' ? { id: 'channel', orgId: 'org' } : null,
    },
    inbox: {
      async take(_kind, _channelId, { headers, body }) {
        taken.push({ from: headers.get('x-envelope-from')!, body: body.toString() });
      },
    },
    log: silentLog,
  });
  const port = (await smtp.start())!;
  t.after(async () => {
    for (const talk of talks) talk.close();
    await smtp.close();
  });
  return {
    taken,
    async talk(from?: string): Promise<Dialogue> {
      const talk = await dialogue(port, from);
      talks.push(talk);
      return talk;
    },
  };
}

/** One mail over a connection on which EHLO was said. */
async function mail(talk: Dialogue, from = 'ada@example.com', text = 'Hello'): Promise<void> {
  assert.match(await talk.say(`MAIL FROM:<${from}>`), /^250/);
  assert.match(await talk.say('RCPT TO:<taken@berth.example>'), /^250/);
  assert.match(await talk.say('DATA'), /^354/);
  assert.match(await talk.say(`Subject: x\r\n\r\n${text}\r\n.`), /^250 /);
}

test('with a certificate STARTTLS is offered until it was used, and a mail after it arrives', async (t) => {
  const { talk: open, taken } = await listening(t, tls);
  const talk = await open();
  assert.ok((await talk.hello()).includes('STARTTLS'));
  assert.match((await talk.secure(ca, name)).answered, /^220 /);
  const features = await talk.hello();
  assert.ok(!features.includes('STARTTLS') && features.includes(`SIZE ${limits.smtpMessageBytes}`));
  assert.match(await talk.say('STARTTLS'), /^503 /);
  await mail(talk);
  assert.deepEqual(
    taken.map(({ from }) => from),
    ['ada@example.com'],
  );
});

test('what was said before the handshake, and what was smuggled into its segment, counts for nothing after it', async (t) => {
  const { talk: open, taken } = await listening(t, tls);
  const talk = await open();
  await talk.hello();
  assert.match(await talk.say('MAIL FROM:<before@example.com>'), /^250/);
  assert.match(await talk.say('RCPT TO:<taken@berth.example>'), /^250/);
  // Whole commands, and a line without its end that would stand before what comes over TLS.
  const smuggled = [
    'RSET',
    'EHLO eve.example',
    'MAIL FROM:<eve@example.com>',
    'RCPT TO:<taken@berth.example>',
  ];
  const { answered } = await talk.secure(ca, name, `${smuggled.join('\r\n')}\r\nDATA\r\nNOOP and `);
  assert.match(answered, /^220 [^\r\n]*$/);
  // RFC 3207, section 4.2: as at the beginning of a connection.
  assert.match(await talk.say('MAIL FROM:<ada@example.com>'), /^503 /);
  await talk.hello();
  assert.match(await talk.say('RCPT TO:<taken@berth.example>'), /^503 /);
  await mail(talk, 'ada@example.com', 'Over TLS');
  assert.deepEqual(taken, [{ from: 'ada@example.com', body: 'Subject: x\r\n\r\nOver TLS\r\n' }]);
});

test('a handshake of nonsense ends its connection alone', async (t) => {
  const { talk: open, taken } = await listening(t, tls);
  const [broken, other] = [await open(), await open()];
  await broken.hello();
  await other.hello();
  assert.match(await broken.say('STARTTLS'), /^220/);
  broken.write('EHLO eve.example\r\nMAIL FROM:<eve@example.com>\r\n');
  await until('it has ended', () => broken.isClosed());
  await mail(other);
  assert.equal(taken.length, 1);
});

test('without a certificate STARTTLS is neither offered nor done, and the connection goes on', async (t) => {
  const { talk: open, taken } = await listening(t, null);
  const talk = await open();
  assert.ok(!(await talk.hello()).includes('STARTTLS'));
  assert.match(await talk.say('STARTTLS'), /^50[02] /);
  await mail(talk);
  assert.equal(taken.length, 1);
});

test('a connection more than one remote address may have is answered with 421; the others go on, and one that ends makes room', async (t) => {
  const { talk: open, taken } = await listening(t, tls);
  const talks = await Promise.all(Array.from({ length: limits.smtpConnectionsPerAddress }, () => open()));
  assert.ok(talks.every(({ greeting }) => greeting.startsWith('220 ')));
  const refused = await open();
  assert.match(refused.greeting, /^421 .*Too many connections from this address/);
  assert.equal(await refused.next(), 'closed');
  const elsewhere = await open('127.0.0.2');
  for (const talk of [elsewhere, talks[0]!, talks.at(-1)!]) {
    await talk.hello();
    await mail(talk);
  }
  assert.equal(taken.length, 3);
  await talks[0]!.secure(ca, name);
  talks[0]!.close();
  await until('there is room for one', async () => (await open()).greeting.startsWith('220 '));
  assert.match((await open()).greeting, /^421 /);
});

test('a connection more than there may be in all is answered with 421; the others go on, and one that ends makes room', async (t) => {
  const { talk: open, taken } = await listening(t, null);
  const each = limits.smtpConnectionsPerAddress;
  const talks = await Promise.all(
    Array.from({ length: limits.smtpConnections }, (_, index) =>
      open(`127.0.0.${2 + Math.floor(index / each)}`),
    ),
  );
  assert.ok(talks.every(({ greeting }) => greeting.startsWith('220 ')));
  const refused = await open();
  assert.match(refused.greeting, /^421 .*Too many connected clients/);
  assert.equal(await refused.next(), 'closed');
  const [first, last] = [talks[0]!, talks.at(-1)!];
  for (const talk of [first, last]) {
    await talk.hello();
    await mail(talk);
  }
  assert.equal(taken.length, 2);
  first.close();
  await until('there is room for one', async () => (await open()).greeting.startsWith('220 '));
  assert.match((await open()).greeting, /^421 /);
});
