import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { IgnoreReason } from '../../src/domain/channel.ts';
import { cases, hasCase, reasonWithout } from '../channels/fixtures/absent.ts';
import { fixtures } from '../channels/fixtures/all.ts';
import { address, smtpFixture } from '../channels/fixtures/mail.ts';
import { brokenBodies, whenBroken } from '../channels/fixtures/broken.ts';
import { kindOf, signed, wrongSecret, type Fixture, type Unsigned } from '../channels/fixtures/fixture.ts';
import {
  everybody,
  kindSide,
  kindWorld,
  said as numberedMessage,
  type KindSide,
  type KindWorld,
  type Stored,
} from '../support/kind-world.ts';
import { stormOfKinds } from '../support/kind-storm.ts';
import { emptyId, numberedMark } from '../support/provider-apis.ts';
import { everythingStored } from '../support/stored-text.ts';
import { until } from '../support/until.ts';

let world: KindWorld;
const sides = new Map<Fixture, KindSide>();
/** Of the agent that answers, and of those whose channels get what nobody answers; a channel for each kind of case. */
let speaker: string;
const quiet: string[] = [];

before(async () => {
  world = await kindWorld();
  for (const fixture of fixtures) sides.set(fixture, await kindSide(fixture));
  speaker = await world.agent('Speaker');
  for (let count = 0; count < fixtures.length; count += 4) quiet.push(await world.agent('Quiet'));
});
after(async () => {
  await world?.close();
  for (const side of sides.values()) await side.close();
});

const of = (rows: Stored[]) => rows.map(({ kind, state, reason, copies }) => [kind, state, reason, copies]);
const withType = (unsigned: Unsigned, type: string): Unsigned => ({
  ...unsigned,
  headers: { ...unsigned.headers, 'content-type': type },
});
const codeOf = (outcome: string) => (outcome.startsWith('signature_') ? 'signature_invalid' : outcome);
const statusOf: Record<string, number> = { signature_invalid: 401, invalid_json: 400, invalid_request: 400 };

/** What stores nothing, and says why not. */
async function refusals(side: KindSide, channelId: string): Promise<void> {
  const { fixture } = side;
  const kind = kindOf(fixture);
  const message = fixture.message({});
  const refused = async (what: string, request: ReturnType<typeof signed>, status: number, code: string) => {
    const heard = await world.send(side, channelId, request);
    assert.deepEqual([heard.status, heard.code], [status, code], `${what}: ${heard.text}`);
    return heard;
  };
  const nowMs = Date.now();
  const right = signed(fixture, message, nowMs);
  await refused(
    'wrong secret',
    signed(fixture, message, nowMs, wrongSecret(fixture)),
    401,
    'signature_invalid',
  );
  const bare = new Map([...right.headers].filter(([name]) => /^(content-type|x-envelope)/.test(name)));
  const body = fixture.signBody ? Buffer.from(message.body) : right.body;
  await refused('no signature', { ...right, headers: bare, body }, 401, 'signature_invalid');
  if (fixture.staleAfterMs !== null) {
    const stale = signed(fixture, message, nowMs - fixture.staleAfterMs);
    await refused('stale', stale, 401, 'signature_invalid');
  }
  const length = String(kind.bodyBytes + 1);
  const huge = { ...right, headers: new Map([...right.headers, ['content-length', length]]) };
  await refused('huge', huge, 413, 'body_too_large');
  const put = await refused('PUT', { ...right, method: 'PUT' }, 405, 'method_not_allowed');
  assert.equal(put.headers['allow'], kind.methods.join(', '));
  const image = signed(fixture, withType(message, 'image/png'), nowMs);
  await refused('wrong type', image, 415, 'unsupported_media_type');
  if (fixture.inLatin1) {
    const klingon = signed(fixture, withType(message, 'application/json; charset=klingon'), nowMs);
    await refused('unknown charset', klingon, 415, 'unsupported_media_type');
  }
  if (fixture.malformed) {
    await refused('malformed inside', signed(fixture, fixture.malformed, nowMs), 400, 'invalid_json');
  }
  const outcomes = whenBroken(fixture);
  for (const [index, text] of brokenBodies.entries()) {
    const code = codeOf(outcomes[index]!);
    // A mail of nonsense is a mail; it comes in a channel of its own.
    if (code === 'accepted') continue;
    const broken = signed(fixture, { ...message, body: text }, nowMs);
    await refused(`broken ${text}`, broken, statusOf[code]!, code);
  }
}

/** Delivers one thing to a channel of its own. */
async function alone(side: KindSide, agentId: string, unsigned: Unsigned): Promise<string> {
  const channelId = await world.channel(agentId, side);
  const heard = await world.deliver(side, channelId, unsigned);
  assert.equal(heard.status, 200, heard.text);
  return channelId;
}

async function handshake(side: KindSide, agentId: string): Promise<void> {
  const { request, answer, unsigned } = side.fixture.handshake!;
  const channelId = await world.channel(agentId, side);
  const heard = await world.deliver(side, channelId, request);
  assert.deepEqual([heard.status, heard.text], [200, answer.body]);
  assert.equal(heard.headers['content-type'] ?? null, answer.type);
  const wrong = unsigned
    ? signed(side.fixture, { ...request, url: request.url!.replace('verify-1', 'verify-2') }, Date.now())
    : signed(side.fixture, request, Date.now(), wrongSecret(side.fixture));
  assert.equal((await world.send(side, channelId, wrong)).status, 401);
  const rows = await world.stored(channelId);
  assert.ok(rows.every(({ state, runId }) => state === 'ignored' && runId === null));
  if (side.fixture.title !== 'email, SES over SNS') return;
  await until('the subscription is confirmed', () =>
    side.calls.some(({ path }) => path.includes('Action=ConfirmSubscription')),
  );
}

/** Everything that proves who sends, but for what is in every request for all to see. */
function secretsIn(side: KindSide): string[] {
  const { credentials, kind } = side.fixture;
  const known = new Set(['publicKey', 'accountSid', 'accessKeyId', 'verifyToken']);
  if (side.fixture.title === 'email, SendGrid') known.add('webhookSecret');
  const values = Object.entries(credentials).filter(([name]) => !known.has(name));
  return values.flatMap(([, value]) => {
    if (kind === 'googlechat') return [JSON.parse(value).private_key.split('\n')[2] as string];
    // As it stands in an Authorization header as well.
    return [value, Buffer.from(`berth:${value}`).toString('base64')];
  });
}

suite('over HTTP, through the running service', { concurrency: 3 }, () => {
  for (const [index, fixture] of fixtures.entries()) {
    test(`${fixture.title}: what is wrong is refused and stores nothing, a message has one turn and one answer, and what nobody waits for has none`, async () => {
      const side = sides.get(fixture)!;
      const shadow = quiet[Math.floor(index / 4)]!;
      const main = await world.channel(speaker, side, everybody(side));
      await refusals(side, main);
      assert.deepEqual(await world.stored(main), []);

      // The same bytes again and again, some of them at once: a replay, or a provider that heard nothing.
      const request = signed(side.fixture, side.fixture.message({ place: '1' }), Date.now());
      const first = await world.send(side, main, request);
      assert.equal(first.status, 200, first.text);
      const copies = await Promise.all([1, 2, 3].map(() => world.send(side, main, request)));
      assert.deepEqual(
        new Set(copies.map(({ status, text }) => `${status} ${text}`)),
        new Set([`200 ${first.text}`]),
      );
      const expected = [[fixture.expected.kind, 'done', null, 3]] as (string | number | null)[][];
      const answered = ['1'];
      if (fixture.inLatin1) {
        const { contentType, text } = fixture.inLatin1;
        const unsigned = side.fixture.message({ id: '2', place: '2', text });
        const latin1 = { ...unsigned, body: Buffer.from(String(unsigned.body), 'latin1') };
        assert.equal((await world.deliver(side, main, withType(latin1, contentType))).status, 200);
        expected.push([fixture.expected.kind, 'done', null, 0]);
        answered.push('2');
      }
      const empty = await world.deliver(
        side,
        main,
        side.fixture.message({ id: emptyId, place: emptyId, text: '' }),
      );
      assert.equal(empty.status, 200, empty.text);
      const reasons = Object.entries(side.fixture.ignored) as [IgnoreReason, Unsigned][];
      const ignored = await Promise.all(reasons.map(([, unsigned]) => alone(side, shadow, unsigned)));
      const isMail = whenBroken(fixture).includes('accepted');
      const broken = { ...side.fixture.message({}), body: brokenBodies[0]! };
      const nonsense = isMail ? [await alone(side, shadow, broken)] : [];
      await world.settled([main, ...ignored, ...nonsense]);
      const rows = await world.stored(main);
      // A command says its own name, and a comment that says nothing names nobody.
      const last = rows.at(-1)!;
      if (fixture.kind === 'discord') answered.push(emptyId);
      else assert.ok(['empty', 'not_addressed'].includes(last.reason!), String(last.reason));
      expected.push([fixture.expected.kind, fixture.kind === 'discord' ? 'done' : 'ignored', last.reason, 0]);
      assert.deepEqual(of(rows), expected);
      assert.equal(new Set(rows.flatMap(({ runId }) => runId ?? [])).size, answered.length);
      await said(rows, fixture);

      for (const [place, [reason]] of reasons.entries()) {
        const [row, ...others] = await world.stored(ignored[place]!);
        assert.deepEqual([row!.state, row!.reason, row!.runId, others], ['ignored', reason, null, []]);
      }
      for (const channelId of nonsense)
        assert.deepEqual(
          (await world.stored(channelId)).map(({ state }) => state),
          ['ignored'],
        );
      if (fixture.retried) {
        const retry = await world.deliver(side, main, fixture.retried);
        assert.equal(retry.status, 200, retry.text);
        await world.settled([main]);
        const [found] = (await world.stored(main)).slice(-1);
        assert.deepEqual(
          [found!.kind, found!.state, found!.runId],
          [`${fixture.kind}.retry`, 'duplicate', null],
        );
      }
      if (fixture.handshake) await handshake(side, shadow);
      for (const name of cases)
        assert.ok(hasCase(fixture, name) || reasonWithout(fixture, name), `no case "${name}"`);

      assert.deepEqual(side.answers.map(({ to }) => to).sort(), answered.map((id) => side.api.to(id)).sort());
      assert.deepEqual([side.repeats, side.strange], [0, []]);
    });
  }
});

test('email over the own listener for SMTP: each mail has one turn and one answer however often it is sent, what nobody waits for has none, and over HTTP nothing is taken', async () => {
  const side = await kindSide(smtpFixture);
  sides.set(smtpFixture, side);
  const channelId = await world.channel(await world.agent('Mailed'), side, everybody(side));
  const overHttp = await world.deliver(side, channelId, side.fixture.message({}));
  assert.deepEqual([overHttp.status, overHttp.code], [401, 'signature_invalid']);
  const ids = ['101', '102', '103', '104'];
  const mails = ids.map((id) => String(numberedMessage(side, id).body));
  // Its sender heard nothing, or it came through several servers.
  const copies = await Promise.all([1, 2, 3, 4, 5].map(() => world.sendMails(address, mails)));
  for (const heard of copies.flat()) assert.match(heard, /^250 /);
  const others = Object.entries(side.fixture.ignored);
  const ignored = await world.sendMails(
    address,
    others.map(([reason, { body }]) => String(body).replace('<q1@', `<${reason}@`)),
  );
  assert.ok(
    ignored.every((heard) => heard.startsWith('250 ')),
    ignored.join('\n'),
  );
  const [unknown] = await world.sendMails('nobody@berth.example', mails.slice(0, 1));
  assert.match(unknown!, /^550 /);
  await world.settled([channelId]);
  const rows = await world.stored(channelId);
  assert.deepEqual(of(rows), [
    ...ids.map(() => ['email.received', 'done', null, 4]),
    ...others.map(([reason]) => ['email.received', 'ignored', reason, 0]),
  ]);
  assert.equal(new Set(rows.flatMap(({ runId }) => runId ?? [])).size, ids.length);
  assert.deepEqual(side.answers.map(({ to }) => to).sort(), ids.map((id) => side.api.to(id)).sort());
  for (const id of ids) assert.ok(side.answersTo(id)[0]!.text.includes(numberedMark(id)), id);
  assert.deepEqual([side.repeats, side.strange], [0, []]);
});

/** What the agent was told, and that what is kept of the request says nothing of what proved it. */
async function said(rows: Stored[], fixture: Fixture): Promise<void> {
  const texts = [fixture.expected.text, fixture.inLatin1 && /Grüße/];
  for (const [index, text] of texts.entries()) {
    if (text === undefined) continue;
    const run = await world.service.api('GET', `/v1/runs/${rows[index]!.runId}`);
    const path = `/v1/conversations/${run.body.run.conversationId}/messages`;
    const messages: { role: string; content: string }[] = (await world.service.api('GET', path)).body
      .messages;
    const message = messages.find(({ role }) => role === 'user')!;
    if (typeof text === 'string') assert.equal(message.content, text);
    else assert.match(message.content, text);
  }
}

test('no credential of a channel is told, logged or stored in the clear', async () => {
  const shown = await Promise.all(
    [speaker, ...quiet].flatMap((agentId) =>
      ['channels', 'inbound-events'].map(
        async (what) => (await world.service.api('GET', `/v1/agents/${agentId}/${what}?limit=100`)).text,
      ),
    ),
  );
  const requests = await world.db().sql<{ text: string }[]>`
    select coalesce(request::text, '') || coalesce(reason, '') || history::text as text from inbound_events`;
  const places: Record<string, string> = {
    'the API': shown.join('\n'),
    'the log': world.service.logs(),
    'what is kept of requests': requests.map(({ text }) => text).join('\n'),
    'the database': await everythingStored(world.db()),
  };
  for (const side of sides.values()) {
    const secrets = secretsIn(side);
    assert.ok(secrets.length > 0 || ['discord'].includes(side.fixture.kind), side.fixture.title);
    for (const secret of secrets) {
      for (const [place, text] of Object.entries(places)) {
        for (const form of [secret, Buffer.from(secret).toString('hex')])
          assert.ok(!text.includes(form), `${side.fixture.title}: ${place} has ${secret.slice(0, 6)}…`);
      }
    }
  }
});

test('messages of every kind, each delivered five times at once, have one turn and one answer each', async (t) => {
  const fresh = await Promise.all(fixtures.map(kindSide));
  t.after(() => Promise.all(fresh.map((side) => side.close())));
  const reports = await stormOfKinds(world, fresh, { messages: 4, copies: 5, settleMs: 240_000 });
  for (const { title, ...told } of reports) {
    const expected = { messages: 4, turns: 4, answers: 4, repeats: 0, twice: 0, wrong: 0, strange: 0 };
    assert.deepEqual(told, expected, title);
  }
});
