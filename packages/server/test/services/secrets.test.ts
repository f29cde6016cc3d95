import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import type { Agent } from '../../src/domain/nouns.ts';
import { everythingStored } from '../support/stored-text.ts';
import { resourceWorld } from '../support/resources.ts';
import type { World } from '../support/resources.ts';

const page = { limit: 100, cursor: null };

let world: World;
let agent: Agent;
before(async () => {
  world = await resourceWorld();
  agent = await world.agents.create(world.owner, { name: 'Keeper' });
});
after(() => world.close());

const generation = async () =>
  (await world.db.sql<{ generation: number }[]>`select generation from agents where id = ${agent.id}`)[0]!
    .generation;
const keysOf = async () =>
  (await world.secrets.list(world.owner, agent.id, page)).items.map(({ key }) => key);

test('a secret is set, rotated, listed by name only and deleted, and each change replaces the sandbox', async () => {
  const { secrets, owner } = world;
  const start = await generation();
  await secrets.put(owner, agent.id, 'FIRST', { value: 'one' });
  await secrets.put(owner, agent.id, 'SECOND', { value: 'two\nlines 🙂' });
  await secrets.put(owner, agent.id, 'FIRST', { value: 'three' });
  assert.deepEqual(await secrets.valuesForSandbox(agent.id), { FIRST: 'three', SECOND: 'two\nlines 🙂' });
  assert.deepEqual(await keysOf(), ['SECOND', 'FIRST']);
  const { items } = await secrets.list(owner, agent.id, page);
  assert.deepEqual(Object.keys(items[0]!).sort(), ['hosts', 'key', 'kind', 'updatedAt']);
  await secrets.remove(owner, agent.id, 'FIRST');
  await assert.rejects(secrets.remove(owner, agent.id, 'FIRST'), { code: 'not_found' });
  assert.deepEqual(await keysOf(), ['SECOND']);
  assert.equal(await generation(), start + 4);
  await secrets.remove(owner, agent.id, 'SECOND');
});

test('a bad key, value or host is refused by name', async () => {
  const put = (key: string, input: { value: string; hosts?: string[] }) =>
    world.secrets.put(world.owner, agent.id, key, input);
  const bad: [string, { value: string; hosts?: string[] }, string][] = [
    ['1A', { value: 'v' }, 'key'],
    ['', { value: 'v' }, 'key'],
    ['A-B', { value: 'v' }, 'key'],
    ['A'.repeat(129), { value: 'v' }, 'key'],
    ['A', { value: '' }, 'value'],
    ['A', { value: 'a\u0000' }, 'value'],
    ['A', { value: '\ud800' }, 'value'],
    ['A', { value: 'x'.repeat(64 * 1024 + 1) }, 'value'],
    ['A', { value: 'é'.repeat(32 * 1024 + 1) }, 'value'],
    ['A', { value: 'v', hosts: ['https://example.com'] }, 'hosts.0'],
    ['A', { value: 'v', hosts: ['ok.example.com', '*'] }, 'hosts.1'],
    ['A', { value: 'v', hosts: ['*.com'] }, 'hosts.0'],
    ['A', { value: 'v', hosts: ['a.*.com'] }, 'hosts.0'],
    ['A', { value: 'v', hosts: Array.from({ length: 21 }, (_, i) => `h${i}.example.com`) }, 'hosts'],
    ...['192.0.2.1', '192.0.2.1:443', '0x7f.1', '[::1]', '::1', '*.0.1', 'a.example.1'].map(refusedHost),
    ...['localhost', 'a.localhost', 'db.internal', 'printer.local', 'a.test', '*.arpa'].map(refusedHost),
    ...['a.example.com:0', 'a.example.com:65536', 'a.example.com:https', 'a.example.com:'].map(refusedHost),
    ...['a.example.com.', 'a..example.com', 'a_b.example.com', 'ü.example.com', ' a.example.com'].map(
      refusedHost,
    ),
    ['A', { value: 'x'.repeat(7), hosts: ['a.example.com'] }, 'value'],
    ['A', { value: 'x'.repeat(8 * 1024 + 1), hosts: ['a.example.com'] }, 'value'],
    ['A', { value: 'two\nlines of it', hosts: ['a.example.com'] }, 'value'],
    ['A', { value: 'a trailing line end\n', hosts: ['a.example.com'] }, 'value'],
    ['A', { value: 'a trailing space ', hosts: ['a.example.com'] }, 'value'],
    ['GIT_TOKEN', { value: 'long enough', hosts: ['github.com'] }, 'hosts'],
    ['ANTHROPIC_API_KEY', { value: 'long enough', hosts: ['api.anthropic.com'] }, 'hosts'],
  ];
  for (const [key, input, path] of bad) {
    await assert.rejects(
      put(key, input),
      (error: { code?: string; details?: { path: string }[] }) =>
        error.code === 'invalid_request' && error.details?.[0]?.path === path,
      `${key} ${JSON.stringify(input).slice(0, 80)}`,
    );
  }
  await put('A', { value: 'x'.repeat(64 * 1024) });
  const hosts = ['API.Example.com', '*.example.org', 'api.example.com:443', 'a.example.com:8443'];
  await put('A', { value: 'x'.repeat(8 * 1024), hosts });
  const { items } = await world.secrets.list(world.owner, agent.id, page);
  assert.deepEqual(items[0]?.hosts, ['api.example.com', '*.example.org', 'a.example.com:8443']);
  await world.secrets.remove(world.owner, agent.id, 'A');
});

const refusedWith =
  (path: string, text: RegExp) => (error: Error & { code?: string; details?: { path: string }[] }) =>
    error.code === 'invalid_request' && error.details?.[0]?.path === path && text.test(error.message);

test('a name that the service itself sets in the sandbox is refused, of whatever kind the secret is', async () => {
  const { secrets, owner } = world;
  const before = await generation();
  const names = ['PATH', 'HOME', 'USER', 'LANG', 'PWD', 'BERTH_SANDBOX', 'BERTH_HARNESS_COMMAND', 'BERTH_'];
  const proxies = ['HTTPS_PROXY', 'https_proxy', 'NO_PROXY', 'all_proxy', 'NODE_USE_ENV_PROXY'];
  const models = ['ANTHROPIC_BASE_URL', 'ANTHROPIC_AUTH_TOKEN', 'OPENAI_BASE_URL', 'GEMINI_API_KEY'];
  for (const key of [...names, ...proxies, ...models])
    for (const hosts of [[], ['api.example.com']])
      await assert.rejects(
        secrets.put(owner, agent.id, key, { value: 'long enough', hosts }),
        refusedWith('key', new RegExp(`${key} .*take another name`)),
        `${key} ${hosts}`,
      );
  assert.deepEqual(await keysOf(), []);
  assert.equal(await generation(), before);
  // These reach the agent, or a provider that looks for its key under the name.
  const seen = ['path', 'NODE_OPTIONS', 'LD_PRELOAD', 'TERM', 'PORT', 'MY_BERTH', 'HTTP_PROXY_USER'];
  for (const key of [...seen, 'ANTHROPIC_API_KEY', 'OPENAI_API_KEY', 'GIT_TOKEN', 'SSL_CERT_FILE']) {
    await secrets.put(owner, agent.id, key, { value: 'v' });
    await secrets.remove(owner, agent.id, key);
  }
});

test('the names of the authority inside are free until the agent has a secret with hosts, and either is told of the other', async () => {
  const { secrets, owner } = world;
  const hosts = ['api.example.com'];
  const broker = () => secrets.put(owner, agent.id, 'TOKEN', { value: 'long enough', hosts });
  await secrets.put(owner, agent.id, 'SSL_CERT_FILE', { value: '/workspace/ca.pem' });
  await assert.rejects(broker(), refusedWith('hosts', /Delete SSL_CERT_FILE first/));
  await assert.rejects(
    secrets.put(owner, agent.id, 'SSL_CERT_FILE', { value: 'long enough', hosts }),
    refusedWith('key', /SSL_CERT_FILE .*take another name/),
  );
  await secrets.remove(owner, agent.id, 'SSL_CERT_FILE');
  await broker();
  await assert.rejects(
    secrets.put(owner, agent.id, 'NODE_EXTRA_CA_CERTS', { value: 'v' }),
    refusedWith('key', /NODE_EXTRA_CA_CERTS .*delete the secrets with hosts first/),
  );
  assert.deepEqual(await keysOf(), ['TOKEN']);
  await secrets.remove(owner, agent.id, 'TOKEN');
});

test('what was stored under such a name before stands in the way of nothing, and can be deleted', async () => {
  const { secrets, owner, db } = world;
  const hosts = ['api.example.com'];
  await secrets.put(owner, agent.id, 'TOKEN', { value: 'long enough', hosts });
  await secrets.put(owner, agent.id, 'OLD', { value: 'v' });
  await db.sql`
    insert into secrets (id, agent_id, key, hosts, sealed_value, wrapped_key, kek_id)
    select gen_random_uuid(), agent_id, n, '{}', sealed_value, wrapped_key, kek_id
    from secrets, unnest(array['PATH', 'SSL_CERT_FILE']) n where agent_id = ${agent.id} and key = 'OLD'`;
  await secrets.put(owner, agent.id, 'TOKEN', { value: 'rotated value' });
  await secrets.put(owner, agent.id, 'OTHER', { value: 'long enough', hosts });
  assert.deepEqual((await keysOf()).sort(), ['OLD', 'OTHER', 'PATH', 'SSL_CERT_FILE', 'TOKEN']);
  for (const key of await keysOf()) await secrets.remove(owner, agent.id, key);
  assert.deepEqual(await keysOf(), []);
});

const refusedHost = (host: string): [string, { value: string; hosts: string[] }, string] => [
  'A',
  { value: 'long enough', hosts: [host] },
  'hosts.0',
];

test('a brokered secret is rotated without a new sandbox, keeps its hosts, and is opened only when that is asked for', async () => {
  const { secrets, owner } = world;
  const value = (text: string) => [{ key: 'TOKEN', hosts: ['api.example.com'], value: Buffer.from(text) }];
  await secrets.put(owner, agent.id, 'TOKEN', { value: 'first value', hosts: ['api.example.com'] });
  const start = await generation();
  await secrets.put(owner, agent.id, 'TOKEN', { value: 'second value', hosts: ['API.example.com'] });
  const current = async () => (await secrets.brokeredValues(agent.id)).secrets;
  assert.deepEqual(await current(), value('second value'));
  await secrets.put(owner, agent.id, 'TOKEN', { value: 'third välue' });
  assert.deepEqual(await current(), value('third välue'));
  assert.equal(await generation(), start);
  assert.deepEqual(await secrets.brokeredNames(agent.id), [{ key: 'TOKEN', hosts: ['api.example.com'] }]);
  await secrets.put(owner, agent.id, 'TOKEN', { value: 'fourth value', hosts: ['b.example.com'] });
  assert.equal(await generation(), start + 1);
  await secrets.put(owner, agent.id, 'TOKEN', { value: 'fifth', hosts: [] });
  assert.equal(await generation(), start + 2);
  assert.deepEqual(await current(), []);
  assert.deepEqual(await secrets.valuesForSandbox(agent.id), { TOKEN: 'fifth' });
  await secrets.put(owner, agent.id, 'TOKEN', { value: 'sixth value', hosts: ['b.example.com'] });
  await secrets.remove(owner, agent.id, 'TOKEN');
  assert.deepEqual(await current(), []);
});

test('provider keys, the git token and brokered secrets stay out of the sandbox', async () => {
  const { secrets, owner } = world;
  const entries = { ANTHROPIC_API_KEY: 'a', GIT_TOKEN: 'g', PLAIN: 'p' };
  for (const [key, value] of Object.entries(entries)) await secrets.put(owner, agent.id, key, { value });
  await secrets.put(owner, agent.id, 'BROKERED', { value: 'brokered', hosts: ['api.example.com'] });
  const { items } = await secrets.list(owner, agent.id, page);
  assert.deepEqual(Object.fromEntries(items.map(({ key, kind }) => [key, kind])), {
    ANTHROPIC_API_KEY: 'withheld',
    GIT_TOKEN: 'withheld',
    PLAIN: 'env',
    BROKERED: 'brokered',
  });
  assert.deepEqual(await secrets.valuesForSandbox(agent.id), { PLAIN: 'p' });
  assert.deepEqual(await secrets.modelKeys(agent.id), { ANTHROPIC_API_KEY: 'a' });
  for (const key of await keysOf()) await secrets.remove(owner, agent.id, key);
  assert.equal(await secrets.gitToken(agent.id, 'https://git.example.com/a.git'), null);
});

test('an agent has at most 100 secrets, also when they are set at the same time', async () => {
  const results = await Promise.allSettled(
    Array.from({ length: 105 }, (_, i) => world.secrets.put(world.owner, agent.id, `S${i}`, { value: 'v' })),
  );
  const refused = results.filter((result) => result.status === 'rejected');
  assert.equal(refused.length, 5);
  assert.ok(refused.every(({ reason }) => (reason as { code?: string }).code === 'conflict'));
  const [present] = await keysOf();
  await world.secrets.put(world.owner, agent.id, present!, { value: 'rotated' });
  for (const key of await keysOf()) await world.secrets.remove(world.owner, agent.id, key);
});

test('a secret that is set by many at the same time has the value of one of them', async () => {
  const values = Array.from({ length: 30 }, (_, i) => `value ${i}`);
  await Promise.all(values.map((value) => world.secrets.put(world.owner, agent.id, 'RACE', { value })));
  assert.deepEqual(await keysOf(), ['RACE']);
  const { RACE } = await world.secrets.valuesForSandbox(agent.id);
  assert.ok(values.includes(RACE!));
  await world.secrets.remove(world.owner, agent.id, 'RACE');
});

test('a sealed value that was moved to another agent or name cannot be opened', async () => {
  const other = await world.agents.create(world.owner, { name: 'Thief' });
  await world.secrets.put(world.owner, agent.id, 'MINE', { value: 'v' });
  const { sql } = world.db;
  await sql`update secrets set agent_id = ${other.id} where agent_id = ${agent.id}`;
  await assert.rejects(world.secrets.valuesForSandbox(other.id));
  await sql`update secrets set agent_id = ${agent.id}, key = 'OTHER' where agent_id = ${other.id}`;
  await assert.rejects(world.secrets.valuesForSandbox(agent.id));
  await sql`delete from secrets where agent_id = ${agent.id}`;
});

test('no value of a secret or a key is anywhere in the database', async () => {
  const value = `plain-${randomBytes(12).toString('hex')}`;
  await world.secrets.put(world.owner, agent.id, 'HIDDEN', { value });
  const { key, value: keyValue } = await world.apiKeys.mintForAgent(world.owner, agent.id, { name: 'k' });
  const text = await everythingStored(world.db);
  assert.ok(text.includes(key.prefix), 'the scan sees the rows');
  for (const secret of [value, keyValue, keyValue.slice(16)]) {
    assert.ok(!text.includes(secret));
    assert.ok(!text.includes(Buffer.from(secret).toString('hex')));
    assert.ok(!text.includes(Buffer.from(secret).toString('base64')));
  }
});
