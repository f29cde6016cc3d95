import assert from 'node:assert/strict';
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { attachmentName } from '../../src/domain/attachment-name.ts';
import { limits } from '../../src/domain/limits.ts';
import type { Attachment } from '../../src/domain/ports/channel.ts';
import { noPreconditions, requirePreconditions } from '../../src/domain/preconditions.ts';
import { createAttachments } from '../../src/services/attachments.ts';
import { createGuardedCaller } from '../../src/services/guarded-call.ts';
import type { SandboxFilesService } from '../../src/services/sandbox-api.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { createVolumes } from '../../src/volumes/volumes.ts';

import { silentLog } from '../support/log.ts';
import { providerStandIn } from '../support/provider-stand-in.ts';
import { until } from '../support/until.ts';
import { telegramFixture, twilioFixture, whatsappFixture } from './fixtures/chat.ts';
import { json, setupOf, signed } from './fixtures/fixture.ts';
import { slackDelivery, slackSecret } from './fixtures/slack.ts';
import { channelWorld, slackRequest } from './world.ts';

let provider: Awaited<ReturnType<typeof providerStandIn>>;
let world: Awaited<ReturnType<typeof channelWorld>>;
let base = '';
before(async () => {
  provider = await providerStandIn(({ path, headers }) => {
    if (path.startsWith('/chat.')) return { body: { ok: true, ts: '1.1' } };
    if (path.startsWith('/missing')) return { status: 404, body: {} };
    if (path.includes('/getFile')) return { body: { ok: true, result: { file_path: 'photos/file_1.jpg' } } };
    if (path === '/media-1') return { body: { url: `${provider.url}/lookaside` } };
    return { body: { path, authorization: headers.authorization ?? null } };
  });
  world = await channelWorld();
  world.worker.start();
  base = mkdtempSync('/tmp/berth-attachments-');
  mkdirSync(join(base, 'workspace'));
});
after(async () => {
  await world?.close();
  await provider?.close();
  rmSync(base, { recursive: true, force: true });
});

const volumes = createVolumes({} as Parameters<typeof createVolumes>[0]);
/** The real writer of volumes, without the agent's row. */
const files: Pick<SandboxFilesService, 'write'> = {
  async write(_principal, _agentId, path, { content }, { mode, preconditions = noPreconditions }) {
    const check = (present: { version: string } | null) =>
      requirePreconditions(preconditions, present && { tag: present.version });
    return volumes.write(base, path, content, { maxBytes: 10_000_000, mode, check });
  },
};
const attachments = () =>
  createAttachments({ caller: createGuardedCaller(createUrlGuard(['127.0.0.0/8'])), files, log: silentLog });
const to = { channelId: 'c', orgId: 'o', agentId: 'a' };
const inline = (name: string, text: string): Attachment => ({
  name,
  mediaType: 'text/plain',
  sizeBytes: text.length,
  content: { at: 'inline', bytes: Buffer.from(text) },
});
const called = (url: string, sizeBytes: number | null = null): Attachment => ({
  name: 'file.bin',
  mediaType: 'application/octet-stream',
  sizeBytes,
  content: { at: 'call', call: { method: 'GET', url, headers: {}, body: null, token: null } },
});
const placeOf = (line: string) => /^- \/workspace\/(attachments\/[0-9a-f]{16}\/.+) \(/.exec(line)?.[1] ?? '';

test('names of strangers become names that lead nowhere, hide nothing, and differ', () => {
  const taken = new Set<string>();
  const names = [
    '../../etc/passwd',
    'C:\\evil\\a.txt',
    '.bashrc',
    'a\u202etxt.exe',
    'a\u0000b.txt',
    '',
    '...',
    'A.TXT',
  ];
  assert.deepEqual(
    names.map((name) => attachmentName(name, taken)),
    ['passwd', 'a.txt', 'bashrc', 'atxt.exe', 'ab.txt', 'file', 'file-2', 'A-2.TXT'],
  );
  const long = attachmentName(`${'ü'.repeat(500)}.pdf`, taken);
  assert.ok(Buffer.byteLength(long) <= 120 && long.endsWith('ü.pdf'));
  assert.ok(attachmentName('\ud800x', taken).isWellFormed());
});

test('files are put into the workspace once, and what is there already is never replaced', async () => {
  const [line] = await attachments().save(to, 'm1', [inline('note.txt', 'first')]);
  const place = placeOf(line!);
  assert.match(line!, /note\.txt \(text\/plain, 5 bytes\)$/);
  assert.equal(readFileSync(join(base, 'workspace', place), 'utf8'), 'first');
  assert.equal(statSync(join(base, 'workspace', place)).mode & 0o777, 0o644);
  writeFileSync(join(base, 'workspace', place), 'changed by the agent');
  const again = await attachments().save(to, 'm1', [inline('note.txt', 'first')]);
  assert.deepEqual(again, [line]);
  assert.equal(readFileSync(join(base, 'workspace', place), 'utf8'), 'changed by the agent');
  const other = await attachments().save(to, 'm2', [inline('note.txt', 'b'), inline('note.txt', 'c')]);
  assert.equal(new Set([line, ...other]).size, 3);
});

test('a link that the sandbox made leads nowhere', async () => {
  const outside = mkdtempSync('/tmp/berth-attachments-');
  const place = placeOf((await attachments().save(to, 'm3', [inline('a.txt', 'a')]))[0]!);
  const folder = join(base, 'workspace', place, '..');
  rmSync(folder, { recursive: true });
  symlinkSync(outside, folder);
  const [line] = await attachments().save(to, 'm3', [inline('a.txt', 'a')]);
  assert.match(line!, /not there, it could not be written/);
  assert.deepEqual(readdirSync(outside), []);
  rmSync(outside, { recursive: true });
});

test('what cannot be had is told with its reason, and the others are there', async () => {
  const lines = await attachments().save(to, 'm4', [
    called(`${provider.url}/missing`),
    called('http://169.254.169.254/latest'),
    called(`${provider.url}/one`, limits.attachmentBytes + 1),
    called('http://127.0.0.1:1/'),
    inline('here.txt', 'here'),
  ]);
  assert.match(lines[0]!, /not there, the provider answered with status 404/);
  assert.match(lines[1]!, /not there, its address may not be called/);
  assert.match(lines[2]!, /not there, it is too large/);
  assert.match(lines[3]!, /not there, it could not be fetched/);
  assert.equal(readFileSync(join(base, 'workspace', placeOf(lines[4]!)), 'utf8'), 'here');
  const many = Array.from({ length: limits.attachmentsPerMessage + 3 }, (_, index) =>
    inline(`${index}.txt`, 'x'),
  );
  assert.match((await attachments().save(to, 'm5', many)).at(-1)!, /^- 3 more, which were left out/);
});

test('what lies behind a further answer is fetched with the credentials of its provider, and nowhere else', async () => {
  const read = async (fixture: typeof telegramFixture, unsigned: Parameters<typeof signed>[1]) => {
    const setup = setupOf(fixture, { apiBaseUrl: provider.url });
    const { attachments: found } = kinds[fixture.kind].parse(signed(fixture, unsigned), setup).events[0]!;
    assert.equal(found.length, 1);
    const [line] = await attachments().save(to, fixture.kind, found);
    return JSON.parse(readFileSync(join(base, 'workspace', placeOf(line!)), 'utf8')) as Record<
      string,
      unknown
    >;
  };
  const photo = json({
    update_id: 1,
    message: {
      message_id: 1,
      from: { id: 1111 },
      chat: { id: 1111, type: 'private' },
      photo: [{ file_id: 'AgAC' }],
    },
  });
  const { botToken } = telegramFixture.credentials;
  assert.equal((await read(telegramFixture, photo))['path'], `/file/bot${botToken}/photos/file_1.jpg`);
  const value = {
    metadata: { phone_number_id: '106540352242922' },
    messages: [{ from: '16505551234', id: 'wamid.1', type: 'image', image: { id: 'media-1' } }],
  };
  const image = json({ entry: [{ changes: [{ value }] }] });
  assert.deepEqual(await read(whatsappFixture, image), {
    path: '/lookaside',
    authorization: `Bearer ${whatsappFixture.credentials['accessToken']}`,
  });
  const media = kinds.twilio.parse(
    signed(twilioFixture, {
      body: new URLSearchParams({
        MessageSid: 'SM1',
        NumMedia: '1',
        MediaUrl0: 'https://api.twilio.com/2010-04-01/x',
      }).toString(),
    }),
    setupOf(twilioFixture),
  ).events[0]!.attachments[0]!.content;
  assert.ok(media.at === 'call' && media.call.headers['authorization']);
  const redirect = (location: string) =>
    media.next!({ status: 307, headers: new Map([['location', location]]), body: Buffer.alloc(0) });
  assert.equal(redirect('https://mms.twiliocdn.com/x')!.call.headers['authorization'], undefined);
  assert.equal(redirect('http://169.254.169.254/'), null);
});

test("an agent is told where a message's files are, and its turn begins when one of them is missing too", async () => {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'slack',
    credentials: { signingSecret: slackSecret, botToken: 'xoxb-files' },
    apiBaseUrl: provider.url,
  });
  const unsigned = slackDelivery(
    {
      type: 'message',
      subtype: 'file_share',
      user: 'U1',
      text: '<@U0BOT> look',
      ts: '77.1',
      channel: 'C1',
      files: [
        { name: 'plan.pdf', mimetype: 'application/pdf', url_private_download: `${provider.url}/plan` },
        { name: 'gone.pdf', mimetype: 'application/pdf', url_private_download: `${provider.url}/missing` },
      ],
    },
    'EvFiles',
  );
  await world.inbox.receive('slack', channel.id, slackRequest(unsigned));
  const row = await until('the message is answered', async () => {
    const [found] = await world.db.sql<{ state: string; conversation_id: string }[]>`
      select state, conversation_id from inbound_events where channel_id = ${channel.id}`;
    return found?.state === 'done' ? found : null;
  });
  const [said] = (await world.log(row.conversation_id)).flatMap((event) =>
    event.type === 'message.created' && event.data.role === 'user' ? [event.data.content] : [],
  );
  const place = /\/workspace\/(attachments\/[0-9a-f]{16}\/plan\.pdf) \(application\/pdf, \d+ bytes\)/.exec(
    said!,
  )?.[1];
  assert.match(said!, /^look\n\nAttachments:\n/);
  assert.match(said!, /- gone\.pdf \(application\/pdf\): not there, the provider answered with status 404/);
  const bytes = world.written.get(place!)!;
  assert.equal(
    (JSON.parse(bytes.toString()) as { authorization: string }).authorization,
    'Bearer xoxb-files',
  );
});
