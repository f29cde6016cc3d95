import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import { endSharedWorld, sharedWorld } from '../support/scenario-world.ts';

after(endSharedWorld);

/** One limit of the contract, section 4: the longest that is taken, and what is refused with the field's name. */
async function assertLimit(
  ask: (value: string) => Promise<{ status: number; text: string; body: any }>, // oxlint-disable-line no-explicit-any
  field: string,
  good: string[],
  bad: string[],
): Promise<void> {
  for (const value of good) {
    const reply = await ask(value);
    assert.ok(reply.status < 300, `${field} of ${value.length}: ${reply.text.slice(0, 300)}`);
  }
  for (const value of bad) {
    const reply = await ask(value);
    assert.deepEqual(
      [reply.status, reply.body.code],
      [400, 'invalid_request'],
      `${field} of ${value.length}`,
    );
    assert.equal(reply.body.details[0].path, field);
  }
}

test('the numbers of the contract are the numbers of the service', () => {
  const { nameChars, descriptionChars, contentChars, secretValueBytes, pageDefault, pageMax, bodyBytes } =
    limits;
  assert.deepEqual(
    { nameChars, descriptionChars, contentChars, secretValueBytes, pageDefault, pageMax, bodyBytes },
    {
      nameChars: 100,
      descriptionChars: 2_000,
      contentChars: 200_000,
      secretValueBytes: 65_536,
      pageDefault: 50,
      pageMax: 100,
      bodyBytes: 1_048_576,
    },
  );
});

test('names have 1 to 100 characters, of agents and of keys, and an emoji is one character', async () => {
  const { call, agentId } = await sharedWorld();
  const good = ['a', 'n'.repeat(100), '😀'.repeat(100)];
  const bad = ['', 'n'.repeat(101), '😀'.repeat(101)];
  await assertLimit((name) => call('POST', '/v1/agents', { name }), 'name', good, bad);
  await assertLimit((name) => call('PATCH', `/v1/agents/${agentId}`, { name }), 'name', good, bad);
  await assertLimit((name) => call('POST', `/v1/agents/${agentId}/api-keys`, { name }), 'name', good, bad);
  const mint = (name: string) => call('POST', '/v1/api-keys', { name, scope: 'use', binding: 'org-bound' });
  await assertLimit(mint, 'name', good, bad);
  const { body } = await call('GET', `/v1/agents/${agentId}`);
  assert.equal(body.agent.name, '😀'.repeat(100));
});

test('a description has up to 2,000 characters', async () => {
  const { call, agentId } = await sharedWorld();
  const change = (description: string) => call('PATCH', `/v1/agents/${agentId}`, { description });
  await assertLimit(change, 'description', ['', 'd'.repeat(2_000)], ['d'.repeat(2_001)]);
});

test('a message has 1 to 200,000 characters, and comes to the model and back whole', async () => {
  const world = await sharedWorld();
  const most = 'm'.repeat(199_999);
  const bad = ['', 'm'.repeat(200_001), '😀'.repeat(200_001)];
  await assertLimit((content) => world.send(content), 'content', [`${most}x`, '😀'.repeat(200_000)], bad);
  const sent = await world.send(`${most}y`);
  assert.equal(sent.body.message.content, `${most}y`.toUpperCase());
});

test('a secret is named by ^[A-Za-z_][A-Za-z0-9_]{0,127}$, and has a value of up to 64 KiB, counted in bytes', async () => {
  const { call, agentId } = await sharedWorld();
  const put = (key: string, value: string) =>
    call('PUT', `/v1/agents/${agentId}/secrets/${encodeURIComponent(key)}`, { value });
  const names = ['A', '_', 'a1_B', `K${'x'.repeat(127)}`];
  await assertLimit((key) => put(key, 'v'), 'key', names, ['1A', 'A-B', 'A B', 'Ä', `K${'x'.repeat(128)}`]);
  const values = ['v'.repeat(65_536), 'é'.repeat(32_768)];
  await assertLimit((value) => put('A', value), 'value', values, ['v'.repeat(65_537), 'é'.repeat(32_769)]);
  const listed = await call('GET', `/v1/agents/${agentId}/secrets?limit=100`);
  const keys = listed.body.secrets.map(({ key }: { key: string }) => key);
  assert.deepEqual(keys.filter((key: string) => names.includes(key)).sort(), names.toSorted());
  for (const key of names) {
    assert.equal((await call('DELETE', `/v1/agents/${agentId}/secrets/${key}`)).status, 204);
  }
});

test('a page has 1 to 100 entries, and 50 when nothing is said', async () => {
  const { call, agentId } = await sharedWorld();
  const list = (limit: string) => call('GET', `/v1/agents?limit=${limit}`);
  await assertLimit(list, 'limit', ['1', '100'], ['0', '101', '-1', '1.5', 'x', '', '1e1', '99999999999']);
  for (let count = 0; count < 51; count += 1) {
    await call('POST', `/v1/agents/${agentId}/api-keys`, { name: `page ${count}` });
  }
  const page = await call('GET', `/v1/agents/${agentId}/api-keys`);
  assert.equal(page.body.keys.length, 50);
  assert.ok(page.body.nextCursor);
});

test('an Idempotency-Key has 1 to 255 printable characters', async () => {
  const { call } = await sharedWorld();
  const make = (key: string) => call('POST', '/v1/agents', { name: 'Once' }, { 'idempotency-key': key });
  await assertLimit(make, 'Idempotency-Key', ['k'.repeat(255), 'a b~'], ['', 'k'.repeat(256), 'é']);
});
