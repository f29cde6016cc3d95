import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import type { Agent } from '../../src/domain/nouns.ts';
import { resourceWorld } from '../support/resources.ts';
import type { World } from '../support/resources.ts';
import { everythingStored } from '../support/stored-text.ts';

const hosts = ['api.example.com'];

let world: World;
let agent: Agent;
before(async () => {
  world = await resourceWorld();
});
after(() => world.close());
beforeEach(async () => {
  agent = await world.agents.create(world.owner, { name: 'Keeper' });
});

const put = (value: string, given: { hosts?: string[] } = {}, key = 'TOKEN') =>
  world.secrets.put(world.owner, agent.id, key, { value, ...given });
const remove = (key = 'TOKEN') => world.secrets.remove(world.owner, agent.id, key);
const earlier = async () =>
  (await world.secrets.brokeredValues(agent.id)).earlier
    .map(({ key, hosts, value }) => `${key} ${value.toString()} ${hosts.join()}`)
    .sort();
const rows = async () =>
  (await world.db.sql`select 1 from earlier_secret_values where agent_id = ${agent.id}`).length;
const age = (days: number) => world.db.sql`
  update earlier_secret_values set replaced_at = now() - make_interval(days => ${days}) where agent_id = ${agent.id}`;

test('what a brokered secret was is known for as long as its hosts may tell it: after a rotation, other hosts, another kind and its end', async () => {
  await put('first value', { hosts });
  assert.deepEqual(await earlier(), []);
  await put('second value');
  assert.deepEqual(await earlier(), ['TOKEN first value api.example.com']);
  await put('second value', { hosts: ['b.example.com'] });
  await put('shown to the agent', { hosts: [] });
  await put('another shown one');
  const three = [
    'TOKEN first value api.example.com',
    'TOKEN second value api.example.com',
    'TOKEN second value b.example.com',
  ];
  assert.deepEqual(await earlier(), three);
  assert.deepEqual(await world.secrets.earlierHosts(agent.id), ['api.example.com', 'b.example.com']);
  await put('third value', { hosts });
  await remove();
  assert.deepEqual(await earlier(), [...three, 'TOKEN third value api.example.com'].sort());
  assert.deepEqual((await world.secrets.brokeredValues(agent.id)).secrets, []);
  const stored = await everythingStored(world.db);
  for (const value of ['first value', 'second value', 'third value'])
    assert.equal(stored.includes(value), false);
});

test('a value that is set again for the same hosts, or for more, drives no earlier one out', async () => {
  await put('first value', { hosts });
  await put('second value');
  for (let time = 0; time < 10; time += 1) await put('second value');
  await put('second value', { hosts: [...hosts, 'more.example.com'] });
  assert.deepEqual(await earlier(), ['TOKEN first value api.example.com']);
});

test('the newest four of a name and hundred of an agent are kept, for seven days, and then no more of them', async () => {
  for (let at = 0; at < 7; at += 1) await put(`the value ${at}`, { hosts });
  assert.deepEqual(
    await earlier(),
    [2, 3, 4, 5].map((at) => `TOKEN the value ${at} api.example.com`),
  );
  for (let at = 0; at < limits.earlierValuesPerAgent; at += 1) {
    await put('a passing value', { hosts }, `K${at}`);
    await remove(`K${at}`);
  }
  assert.equal((await earlier()).length, limits.earlierValuesPerAgent);
  assert.deepEqual(
    (await earlier()).filter((text) => text.startsWith('TOKEN')),
    [],
  );
  await age(limits.earlierValueDays - 1);
  assert.equal((await earlier()).length, limits.earlierValuesPerAgent);
  await age(limits.earlierValueDays);
  assert.deepEqual(await earlier(), []);
  assert.deepEqual(await world.secrets.earlierHosts(agent.id), []);
  await put('last value');
  assert.equal(await world.secrets.purgeEarlier(), limits.earlierValuesPerAgent - 1);
  assert.deepEqual(await earlier(), ['TOKEN the value 6 api.example.com']);
});

test('a value that cannot be opened any more is replaced and deleted, and stands in the way of nothing', async () => {
  for (const change of [() => put('second value'), remove]) {
    await put('first value', { hosts });
    await world.db.sql`update secrets set sealed_value = '\\x00' where agent_id = ${agent.id}`;
    await change();
    assert.deepEqual(await earlier(), change === remove ? ['TOKEN second value api.example.com'] : []);
  }
});

test('an earlier value that cannot be opened any more is not searched for, and the others and the current one are', async () => {
  await put('first value', { hosts });
  await put('second value');
  await world.db.sql`update earlier_secret_values set sealed_value = '\\x00' where agent_id = ${agent.id}`;
  await put('third value');
  assert.deepEqual(await earlier(), ['TOKEN second value api.example.com']);
  const { secrets } = await world.secrets.brokeredValues(agent.id);
  assert.deepEqual(
    secrets.map(({ value }) => value.toString()),
    ['third value'],
  );
});

test('what was brokered stays unseen behind no variable that an agent without brokered secrets was given', async () => {
  await put('first value', { hosts });
  await remove();
  assert.deepEqual(await world.secrets.earlierHosts(agent.id), hosts);
  await put('/workspace/ca.pem', {}, 'SSL_CERT_FILE');
  assert.deepEqual(await world.secrets.earlierHosts(agent.id), []);
});

test('nothing of it is left with the end of its agent', async () => {
  await put('first value', { hosts });
  await put('second value');
  assert.equal(await rows(), 1);
  await world.agents.remove(world.owner, agent.id);
  assert.equal(await rows(), 0);
});
