import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { DomainError } from '../../src/domain/errors.ts';
import { hookUrl } from './fixtures/fixture.ts';
import { googleChatFixture } from './fixtures/tokens.ts';
import { twilioFixture } from './fixtures/chat.ts';
import { channelWorld } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
before(async () => (world = await channelWorld()));
after(() => world.close());

const generic = { kind: 'generic' as const, settings: {}, credentials: {} };
const setting = {
  replyUrl: generic,
  publicUrl: twilioFixture,
  audienceUrl: googleChatFixture,
};

const create = (name: keyof typeof setting, url: unknown) => {
  const { kind, settings, credentials } = setting[name];
  const input = { kind, credentials, settings: { ...settings, [name]: url } };
  return world.service.create(world.owner, world.agentId, input);
};
const refused = (attempt: Promise<unknown>, path: string) =>
  assert.rejects(
    attempt,
    (error: unknown) =>
      error instanceof DomainError && error.code === 'invalid_request' && error.details?.[0]?.path === path,
  );

test('every setting that holds a URL is looked at as one', () => {
  for (const kind of Object.values(kinds)) {
    for (const { name, type } of kind.settings) {
      if (/url/i.test(name)) assert.match(String(type), /^(called|named)Url$/, `${kind.name}: ${name}`);
    }
  }
});

test('a setting that holds a URL takes nothing else, when a channel is made and when it is changed', async () => {
  for (const name of Object.keys(setting) as (keyof typeof setting)[]) {
    const { channel } = await create(name, 'https://93.184.216.34/in?a=1');
    for (const url of [
      'nowhere',
      '/in',
      'file:///etc/passwd',
      'about:blank',
      'https://a b/',
      'https://',
      7,
    ]) {
      await refused(create(name, url), `settings.${name}`);
      const change = world.service.update(world.owner, channel.id, { settings: { [name]: url } });
      await refused(change, `settings.${name}`);
    }
    assert.deepEqual((await world.service.get(world.owner, channel.id)).settings, channel.settings);
    const without = await world.service.update(world.owner, channel.id, { settings: { [name]: '' } });
    assert.equal(without.settings[name], '');
  }
});

test('what is only compared may lead anywhere, as it was entered at the provider', async () => {
  const url = hookUrl.replace('https://berth.example', 'https://user:password@10.0.0.1:8443');
  assert.equal((await create('publicUrl', url)).channel.settings['publicUrl'], url);
  await refused(create('replyUrl', url), 'settings.replyUrl');
});

test('a channel whose URL was taken before it was looked at can be changed otherwise', async () => {
  const { channel } = await create('replyUrl', 'https://93.184.216.34/in');
  const kept = { ...channel.settings, replyUrl: 'file:///etc/passwd' };
  await world.db.sql`update channels set settings = ${world.db.sql.json(kept)} where id = ${channel.id}`;
  const changed = await world.service.update(world.owner, channel.id, { name: 'Ops' });
  assert.deepEqual([changed.name, changed.settings], ['Ops', kept]);
});
