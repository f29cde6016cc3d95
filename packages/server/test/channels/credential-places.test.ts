import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import type { ChannelKindName } from '../../src/domain/channel.ts';
import { DomainError } from '../../src/domain/errors.ts';
import type { ChannelSetup } from '../../src/domain/ports/channel.ts';
import { createGuardedCaller } from '../../src/services/guarded-call.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { providerStandIn } from '../support/provider-stand-in.ts';
import { until } from '../support/until.ts';
import { slackSecret } from './fixtures/slack.ts';
import { channelId, nowMs, setupOf } from './fixtures/fixture.ts';
import { serviceUrl, teamsFixture } from './fixtures/tokens.ts';
import { channelWorld } from './world.ts';

type Provider = Awaited<ReturnType<typeof providerStandIn>>;
let world: Awaited<ReturnType<typeof channelWorld>>;
let own: Provider;
let other: Provider;

before(async () => {
  world = await channelWorld();
  own = await providerStandIn(() => ({ body: { ok: true, ts: '1.1', id: 'sent' } }));
  other = await providerStandIn(() => ({ body: { ok: true, ts: '1.1', id: 'sent', access_token: 'other' } }));
  world.worker.start();
});
after(async () => {
  await world?.close();
  await own?.close();
  await other?.close();
});

type Input = Parameters<typeof world.service.create>[2];
type Patch = Parameters<typeof world.service.update>[2];

const make = async (input: Input) =>
  (await world.service.create(world.owner, world.agentId, input)).channel.id;
const update = (id: string, patch: Patch) => world.service.update(world.owner, id, patch);

async function refused(id: string, patch: Patch, path: string): Promise<void> {
  const before = await world.service.get(world.owner, id);
  await assert.rejects(update(id, patch), (error: unknown) => {
    assert.ok(error instanceof DomainError);
    assert.deepEqual([error.code, error.details?.[0]?.path], ['invalid_request', path]);
    assert.match(error.message, /given again/);
    return true;
  });
  const now = await world.service.get(world.owner, id);
  assert.deepEqual(now, before);
}

/** Sends an answer to wherever the channel says, and gives what was sent there. */
async function answered(id: string, provider: Provider) {
  const calls = provider.calls.length;
  const tested = await world.service.test(world.owner, id, { text: 'out', isAnswered: true });
  await until('the event is settled', async () => {
    const row = await world.events.get(tested.events[0]!.id);
    return row !== null && row.state !== 'queued' && row.state !== 'processing';
  });
  return provider.calls.slice(calls);
}

test('the credentials of a channel are never sent to another API than the one that they were given for', async () => {
  const id = await make({
    kind: 'slack',
    credentials: { signingSecret: slackSecret, botToken: 'xoxb-owner' },
    apiBaseUrl: own.url,
  });
  await refused(id, { apiBaseUrl: other.url }, 'credentials.botToken');
  await refused(id, { apiBaseUrl: null }, 'credentials.botToken');
  // What only checks what comes in is not what is needed.
  await refused(
    id,
    { apiBaseUrl: other.url, credentials: { signingSecret: slackSecret } },
    'credentials.botToken',
  );
  const sent = await answered(id, own);
  assert.deepEqual(
    sent.map(({ headers }) => headers['authorization']),
    ['Bearer xoxb-owner'],
  );
  assert.equal(other.calls.length, 0);

  // Another path is the same server, and the token that comes along is for the new one.
  await update(id, { apiBaseUrl: `${own.url}/api` });
  const moved = await update(id, { apiBaseUrl: other.url, credentials: { botToken: 'xoxb-other' } });
  assert.equal(moved.apiBaseUrl, other.url);
  const calls = await answered(id, other);
  assert.deepEqual(
    calls.map(({ headers }) => headers['authorization']),
    ['Bearer xoxb-other'],
  );
});

test('a credential that may be missing can be taken away with the change instead', async () => {
  const id = await make({ kind: 'gitlab', credentials: { token: 'glpat-owner' } });
  await refused(id, { apiBaseUrl: other.url }, 'credentials.token');
  const changed = await update(id, { apiBaseUrl: other.url, credentials: { token: null } });
  assert.equal(changed.apiBaseUrl, other.url);
});

test('a secret that answers bear as it is goes to no other replyUrl, and to none by a change of the scheme', async () => {
  const settings = { scheme: 'token', signatureHeader: 'X-Token', replyUrl: `${own.url}/answers` };
  const bearing = await make({ kind: 'generic', settings });
  await refused(bearing, { settings: { replyUrl: `${other.url}/answers` } }, 'credentials.secret');
  await update(bearing, { settings: { replyUrl: `${own.url}/elsewhere` } });
  await update(bearing, {
    settings: { replyUrl: `${other.url}/answers` },
    credentials: { secret: 'another-secret' },
  });

  const signing = await make({ kind: 'generic' });
  await update(signing, { settings: { replyUrl: `${own.url}/answers` } });
  await refused(signing, { settings: { scheme: 'token', signatureHeader: 'X-Token' } }, 'credentials.secret');
});

test('the key of one mail service is not sent to another, whichever setting would do it', async () => {
  const settings = { provider: 'mime', address: 'places@example.com', sender: 'resend' };
  const id = await make({ kind: 'email', settings, credentials: { apiKey: 're_owner' } });
  await refused(id, { settings: { sender: 'sendgrid' } }, 'credentials.apiKey');
  await refused(id, { settings: { provider: 'postmark', sender: null } }, 'credentials.apiKey');
  await refused(id, { apiBaseUrl: other.url }, 'credentials.apiKey');
  await update(id, { settings: { from: 'Berth <berth@example.com>' } });
  await update(id, { settings: { sender: 'sendgrid' }, credentials: { apiKey: 'SG.new' } });
});

test('a region that would lead to another host is refused', async () => {
  const input = (region: string): Input => ({
    kind: 'email',
    settings: { provider: 'mime', address: 'region@example.com', sender: 'ses', region },
    credentials: { accessKeyId: 'AKIA1', secretAccessKey: 'x' },
  });
  for (const region of ['x.evil.example/', 'evil.example#', 'user@evil.example:443/', 'EU']) {
    await assert.rejects(make(input(region)), { code: 'invalid_request' }, region);
  }
  await make(input('eu-central-1'));
});

test('every kind says of each credential whether it leaves the service, and that its API decides where to', () => {
  const outgoing: Record<ChannelKindName, [settings: ChannelSetup['settings'], names: string[]]> = {
    slack: [{}, ['botToken']],
    email: [{ provider: 'ses', sender: 'resend' }, ['apiKey', 'accessKeyId', 'secretAccessKey']],
    github: [{}, ['token', 'appPrivateKey']],
    gitlab: [{}, ['token']],
    linear: [{}, ['apiKey']],
    telegram: [{}, ['botToken']],
    discord: [{}, []],
    whatsapp: [{}, ['accessToken']],
    twilio: [{}, ['accountSid', 'authToken']],
    teams: [{}, ['appPassword']],
    googlechat: [{}, ['serviceAccount']],
    generic: [{}, []],
  };
  for (const kind of Object.values(kinds)) {
    const [settings, expected] = outgoing[kind.name];
    const names = kind.credentials.map(({ name }) => name);
    const at = (apiBaseUrl: string | null) => (name: string) => kind.sentTo(name, { settings, apiBaseUrl });
    assert.deepEqual(
      names.filter((name) => at(null)(name) !== null),
      expected,
      kind.name,
    );
    for (const name of expected) {
      assert.equal(at('https://a.example:8443/api')(name), 'https://a.example:8443');
      assert.notEqual(at(null)(name), at('https://a.example')(name));
    }
  }
});

test('an access token that was got from one address is not sent for a grant of another', async () => {
  const caller = createGuardedCaller(createUrlGuard(['127.0.0.0/8']));
  const giver = await providerStandIn(() => ({ body: { access_token: 'owner' } }));
  try {
    const call = (base: string) => {
      const request = { method: 'POST' as const, headers: {}, body: null };
      const grant = { ...request, url: `${base}/token`, token: null };
      const token = { cacheKey: `teams:${channelId}`, call: grant, tokenField: 'access_token' };
      return caller.call({ ...request, url: `${base}/answer`, token });
    };
    const before = other.calls.length;
    await call(giver.url);
    await call(other.url);
    await call(giver.url);
    const bearers = (provider: Provider, from: number) =>
      provider.calls.slice(from).map(({ path, headers }) => [path, headers['authorization']]);
    assert.deepEqual(bearers(giver, 0), [
      ['/token', undefined],
      ['/answer', 'Bearer owner'],
      ['/answer', 'Bearer owner'],
    ]);
    assert.deepEqual(bearers(other, before), [
      ['/token', undefined],
      ['/answer', 'Bearer other'],
    ]);
  } finally {
    await giver.close();
  }
});

test('a Teams event of an API that the channel has no more is not answered with the new credentials', () => {
  const reply = (at: string, apiBaseUrl: string | null) =>
    kinds.teams.reply(
      {
        text: 'Yes.',
        replyTo: { serviceUrl: at, conversation: 'c', activityId: '1' },
        outboxId: channelId,
      },
      setupOf(teamsFixture, { apiBaseUrl }),
      nowMs,
    );
  assert.equal(reply('https://stand-in.example/bot', 'https://stand-in.example').length, 1);
  assert.equal(reply('https://stand-in.example/bot', null).length, 0);
  assert.equal(reply(serviceUrl, null).length, 1);
});
