import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { limits } from '../../src/domain/limits.ts';
import { createProofDocuments } from '../../src/services/proof-documents.ts';
import { providerStandIn, type ProviderAnswer } from '../support/provider-stand-in.ts';
import { signed } from './fixtures/fixture.ts';
import {
  chatClaims,
  googleChatFixture,
  serviceKeys,
  teamsClaims,
  teamsFixture,
  token,
} from './fixtures/tokens.ts';
import { channelWorld } from './world.ts';

const nextKeys = generateKeyPairSync('rsa', { modulusLength: 2048 });
const named = (keyId: string, { publicKey }: typeof nextKeys) => ({
  ...publicKey.export({ format: 'jwk' }),
  kid: keyId,
  use: 'sig',
});
const kindsOfToken = [
  { fixture: teamsFixture, claims: teamsClaims, keysPath: '/v1/.well-known/keys' },
  { fixture: googleChatFixture, claims: chatClaims, keysPath: '/oauth2/v3/certs' },
];
const refused = (code: string) => (error: unknown) => error instanceof DomainError && error.code === code;

let world: Awaited<ReturnType<typeof channelWorld>>;
before(async () => {
  world = await channelWorld();
});
after(() => world?.close());

for (const { fixture, claims, keysPath } of kindsOfToken) {
  /** A channel whose provider publishes what the test says; deliveries that name a key and are signed with it. */
  const withKeys = async (published: unknown[]) => {
    const keys = [...published];
    const provider = await providerStandIn(({ path }): ProviderAnswer => ({
      body: path === keysPath ? { keys } : { jwks_uri: `${provider.url}${keysPath}` },
    }));
    const { channel } = await world.service.create(world.owner, world.agentId, {
      kind: fixture.kind,
      settings: fixture.settings,
      credentials: fixture.credentials,
      apiBaseUrl: provider.url,
    });
    return {
      keys,
      provider,
      fetches: () => provider.calls.filter(({ path }) => path === keysPath).length,
      deliver(keyId: string, id: string, pair = nextKeys) {
        const request = signed(fixture, fixture.message({ id }), Date.now());
        const header = { alg: 'RS256', typ: 'JWT', kid: keyId };
        const bearer = `Bearer ${token(claims(Date.now()), pair.privateKey, header)}`;
        return world.inbox.receive(fixture.kind, channel.id, {
          ...request,
          headers: new Map(request.headers).set('authorization', bearer),
        });
      },
    };
  };

  test(`${fixture.title}: what is signed with a key that the provider has just published is taken`, async (t) => {
    const at = await withKeys([named('key-1', serviceKeys)]);
    t.after(() => at.provider.close());
    await at.deliver('key-1', '1', serviceKeys);
    assert.equal(at.fetches(), 1);
    at.keys.push(named('key-2', nextKeys));
    await Promise.all([at.deliver('key-2', '2'), at.deliver('key-2', '3')]);
    assert.equal(at.fetches(), 2);
    await at.deliver('key-1', '4', serviceKeys);
    await assert.rejects(at.deliver('key-1', '5', nextKeys), refused('signature_invalid'));
    assert.equal(at.fetches(), 2);
  });

  test(`${fixture.title}: names of keys that never were make no flood of calls`, async (t) => {
    const at = await withKeys([named('key-1', serviceKeys)]);
    t.after(() => at.provider.close());
    await at.deliver('key-1', '1', serviceKeys);
    const startedMs = performance.now();
    const flood = Array.from({ length: limits.forgeriesPerMinute + 20 }, (_, index) =>
      assert.rejects(at.deliver(`stranger-${index}`, '2'), refused('signature_invalid')),
    );
    await Promise.all(flood);
    const windows = 1 + Math.floor((performance.now() - startedMs) / (limits.keyRefreshSeconds * 1000));
    assert.ok(at.fetches() <= 1 + windows, String(at.fetches()));
    await at.deliver('key-1', '3', serviceKeys);
  });
}

test('a key set is looked at anew at once, and then once in a while; one that cannot be had is no reason to refuse for good', async () => {
  let nowMs = 1_000_000;
  let calls = 0;
  let status = 200;
  let text = 'first';
  const documents = createProofDocuments(
    {
      async call() {
        calls += 1;
        return { status, headers: new Map(), body: Buffer.from(text) };
      },
    },
    () => nowMs,
  );
  const url = 'https://keys.example/set';
  await Promise.all([documents.fetch(url), documents.fetch(url), documents.fetch(url)]);
  assert.equal(calls, 1);
  const seen = documents.fresh();
  assert.deepEqual([await documents.refresh(url, seen), calls], [false, 2]);
  text = 'second';
  assert.deepEqual([await documents.refresh(url, seen), calls], [false, 2]);
  nowMs += limits.keyRefreshSeconds * 1000;
  const asked = [documents.refresh(url, seen), documents.refresh(url, seen)];
  assert.deepEqual([await Promise.all(asked), calls], [[true, true], 3]);
  // Whoever has seen the older text need not wait for another look.
  assert.deepEqual([await documents.refresh(url, seen), calls], [true, 3]);
  const latest = documents.fresh();
  nowMs += limits.keyRefreshSeconds * 1000;
  status = 500;
  await assert.rejects(documents.refresh(url, latest), refused('unavailable'));
  await assert.rejects(documents.refresh(url, latest), refused('unavailable'));
  assert.equal(calls, 4);
  [status, text] = [200, 'third'];
  nowMs += limits.keyRefreshSeconds * 1000;
  assert.deepEqual([await documents.refresh(url, latest), calls], [true, 5]);
  assert.equal(documents.fresh().get(url), 'third');
});

test('a key set whose time is over is fetched for a genuine delivery, however many forgeries come', () => {
  let nowMs = 1_000_000;
  const documents = createProofDocuments(
    { call: async () => ({ status: 200, headers: new Map(), body: Buffer.from('keys') }) },
    () => nowMs,
  );
  assert.equal(documents.isDue('https://keys.example/unknown'), false);
  return documents.fetch('https://keys.example/set').then(() => {
    nowMs += 20 * 60_000;
    assert.equal(documents.fresh().size, 0);
    assert.deepEqual(
      [documents.isDue('https://keys.example/set'), documents.isDue('https://keys.example/set')],
      [true, false],
    );
  });
});

test('a key set whose time is over is fetched once for all deliveries that come meanwhile, however many forgeries come', async () => {
  let nowMs = 1_000_000;
  let answer = Promise.withResolvers<void>();
  let calls = 0;
  const documents = createProofDocuments(
    {
      async call() {
        calls += 1;
        await answer.promise;
        return { status: 200, headers: new Map(), body: Buffer.from('keys') };
      },
    },
    () => nowMs,
  );
  const url = 'https://keys.example/set';
  answer.resolve();
  await documents.fetch(url);
  nowMs += 20 * 60_000;
  answer = Promise.withResolvers();
  const deliver = () => (documents.isDue(url) ? documents.fetch(url) : Promise.reject(new Error('refused')));
  const delivered = [deliver(), deliver(), deliver()];
  answer.resolve();
  await Promise.all(delivered);
  assert.equal(calls, 2);
  assert.equal(documents.isDue(url), false);
});
