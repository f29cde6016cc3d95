import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { newId } from '../../src/domain/ids.ts';
import type { OnceWork, StoredAnswer } from '../../src/services/api.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';
import { until } from '../support/until.ts';

let world: EdgeWorld;
before(async () => void (world = await edgeWorld()));
after(() => world.close());

const mint = (key: string, name = 'CI', caller = world.keys.owner) =>
  world.call('POST', `/v1/agents/${world.agent.id}/api-keys`, {
    key: caller,
    body: { name },
    headers: { 'idempotency-key': key },
  });

const answer = (text: string): StoredAnswer => ({
  status: 201,
  headers: {},
  secretOf: null,
  body: Buffer.from(text),
});
const work = (run: OnceWork['run'], lease = false, repeatable = false): OnceWork => ({
  lease,
  repeatable,
  run,
  refusal: (error) =>
    error instanceof DomainError && error.code === 'not_found' ? { ...answer('refused'), status: 404 } : null,
});

/** A promise to be settled from outside. */
function gate<T>() {
  let open: (value: T) => void = () => {};
  const promise = new Promise<T>((resolve) => (open = resolve));
  return { promise, open };
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => null,
    (error: unknown) => error,
  );
  return error instanceof DomainError ? error.code : String(error);
}

test('the same POST again gets the first answer, byte for byte, and is marked as replayed', async () => {
  const key = newId();
  const first = await mint(key);
  const second = await mint(key);
  assert.deepEqual([first.status, second.status], [201, 201]);
  assert.equal(second.text, first.text);
  assert.equal(first.headers.get('idempotent-replayed'), null);
  assert.equal(second.headers.get('idempotent-replayed'), 'true');
  const created = await Promise.all(
    [0, 1].map(() =>
      world.call('POST', '/v1/agents', {
        body: { name: 'Once' },
        headers: { 'idempotency-key': 'create-once' },
      }),
    ),
  );
  const again = await world.call('POST', '/v1/agents', {
    body: { name: 'Once' },
    headers: { 'idempotency-key': 'create-once' },
  });
  assert.equal(
    again.headers.get('location'),
    created.find((one) => one.status === 201)!.headers.get('location'),
  );
  const agents = (await world.call('GET', '/v1/agents')).json as { agents: { name: string }[] };
  assert.equal(agents.agents.filter((agent) => agent.name === 'Once').length, 1);
});

test('the order of the fields does not matter, another value or another path does: 422', async () => {
  const key = newId();
  const post = (body: string, path = '/v1/agents') =>
    world.call('POST', path, { body, headers: { 'idempotency-key': key } });
  assert.equal((await post('{"name":"A","description":"B"}')).status, 201);
  assert.equal((await post('{ "description":"B", "name":"A" }')).headers.get('idempotent-replayed'), 'true');
  const other = await post('{"name":"C"}');
  assert.deepEqual([other.status, (other.json as { code: string }).code], [422, 'idempotency_key_reused']);
  assert.equal((await post('{"name":"A"}', `/v1/agents/${world.agent.id}/api-keys`)).status, 422);
});

test('an Idempotency-Key belongs to the API key that sent it', async () => {
  const key = newId();
  const first = await mint(key);
  const other = await mint(key, 'CI', world.keys.edit);
  assert.equal(other.status, 201);
  assert.notEqual(other.text, first.text);
});

test('what is kept is sealed: no key value can be read in the database', async () => {
  const first = await mint(newId());
  const { value } = first.json as { value: string };
  const rows = await world.resources.db.sql`select *, encode(sealed_body, 'escape') as text from idempotency`;
  assert.ok(rows.length > 0);
  assert.ok(!JSON.stringify(rows).includes(value));
  for (const row of rows) assert.ok(!Buffer.from(row['sealed_body'] as Buffer).includes(value));
});

test('two at the same moment: one works, the other gets 409, and nothing is done twice', async () => {
  const key = newId();
  const replies = await Promise.all([mint(key, 'twin'), mint(key, 'twin'), mint(key, 'twin')]);
  const done = replies.filter((reply) => reply.status === 201);
  assert.ok(done.length >= 1);
  assert.equal(new Set(done.map((reply) => reply.text)).size, 1);
  for (const reply of replies.filter((one) => one.status !== 201)) {
    assert.deepEqual([reply.status, (reply.json as { code: string }).code], [409, 'idempotency_in_progress']);
    assert.equal(reply.headers.get('retry-after'), '1');
  }
  const keys = (await world.call('GET', `/v1/agents/${world.agent.id}/api-keys`)).json as {
    keys: { name: string }[];
  };
  assert.equal(keys.keys.filter((one) => one.name === 'twin').length, 1);
});

for (const lease of [false, true]) {
  const kind = lease ? 'with a lease' : 'in one transaction';

  test(`${kind}: in flight is 409, done is replayed, other input is 422`, async () => {
    const { idempotency, resources } = world;
    const key = newId();
    const held = gate<StoredAnswer>();
    const began = gate<true>();
    const first = idempotency.once(
      resources.owner,
      key,
      'hash',
      work(() => (began.open(true), held.promise), lease),
    );
    await began.promise;
    const refuse = work(() => assert.fail('must not run'), lease);
    assert.equal(
      await codeOf(idempotency.once(resources.owner, key, 'hash', refuse)),
      'idempotency_in_progress',
    );
    held.open(answer('one'));
    assert.equal((await first).replayed, false);
    const again = await idempotency.once(resources.owner, key, 'hash', refuse);
    assert.deepEqual([again.replayed, again.answer.body.toString()], [true, 'one']);
    assert.equal(
      await codeOf(idempotency.once(resources.owner, key, 'other', refuse)),
      'idempotency_key_reused',
    );
  });

  test(`${kind}: a failure of ours is not kept, a refusal is`, async () => {
    const { idempotency, resources } = world;
    const key = newId();
    const fail = work(() => Promise.reject(new Error('broken')), lease);
    await assert.rejects(idempotency.once(resources.owner, key, 'hash', fail), /broken/);
    const gone = work(() => Promise.reject(new DomainError('not_found', 'Not found.')), lease);
    assert.equal(await codeOf(idempotency.once(resources.owner, key, 'hash', gone)), 'not_found');
    const again = await idempotency.once(
      resources.owner,
      key,
      'hash',
      work(() => assert.fail('must not run'), lease),
    );
    assert.deepEqual([again.replayed, again.answer.status], [true, 404]);
  });
}

test('in one transaction: when the work fails, its effect is gone as well', async () => {
  const { idempotency, resources } = world;
  const { db } = resources;
  const id = newId();
  const insertThenFail = work(async () => {
    await db.sql`insert into orgs (id, name) values (${id}, 'half')`;
    throw new Error('broken');
  });
  await assert.rejects(idempotency.once(resources.owner, newId(), 'hash', insertThenFail), /broken/);
  assert.equal((await db.sql`select 1 from orgs where id = ${id}`).length, 0);
});

test('with a lease: work whose process died is done again only where twice is as once, and never instead of another', async () => {
  const { idempotency, resources } = world;
  const { owner, db } = resources;
  const key = newId();
  await db.sql`
    insert into idempotency (key_id, idempotency_key, request_hash, created_at)
    values (${owner.keyId}, ${key}, 'hash', now() - interval '31 seconds')`;
  const refuse = () => assert.fail('must not run');
  const again = (hash: string, what: OnceWork) => codeOf(idempotency.once(owner, key, hash, what));
  for (let round = 0; round < 2; round += 1)
    assert.equal(await again('hash', work(refuse, true)), 'idempotency_interrupted');
  assert.equal(await again('hash', work(refuse)), 'idempotency_interrupted');
  assert.equal(await again('other', work(refuse, true, true)), 'idempotency_key_reused');
  const done = await idempotency.once(
    owner,
    key,
    'hash',
    work(async () => answer('second'), true, true),
  );
  assert.deepEqual([done.replayed, done.answer.body.toString()], [false, 'second']);
});

test('with a lease: work that was done and whose answer could not be kept is not done again', async () => {
  const { idempotency, resources } = world;
  const key = newId();
  // No status has so many digits.
  const unkeepable = async () => ({ ...answer('done'), status: 2 ** 40 });
  await assert.rejects(
    idempotency.once(resources.owner, key, 'hash', work(unkeepable, true)),
    /out of range/,
  );
  const refuse = work(() => assert.fail('must not run'), true);
  const code = await codeOf(idempotency.once(resources.owner, key, 'hash', refuse));
  assert.equal(code, 'idempotency_interrupted');
});

test('after 24 hours an answer counts as absent, and purging removes it', async () => {
  const { idempotency, resources } = world;
  const { db } = resources;
  const key = newId();
  const once = (text: string) =>
    idempotency.once(
      resources.owner,
      key,
      text,
      work(async () => answer(text)),
    );
  await once('first');
  const age = () =>
    db.sql`update idempotency set created_at = now() - interval '25 hours' where idempotency_key = ${key}`;
  await age();
  assert.equal((await once('second')).replayed, false);
  await age();
  assert.ok((await idempotency.purge()) >= 1);
  assert.equal((await db.sql`select 1 from idempotency where idempotency_key = ${key}`).length, 0);
});

test('a POST that waits for something else does not hold a database connection meanwhile', async () => {
  const { resources, core, call, agent } = world;
  const { runId } = await core.runs.send(resources.owner, {
    agentId: agent.id,
    conversationId: null,
    content: 'x',
    onBusy: 'enqueue',
    source: 'api',
    idempotency: null,
  });
  const key = newId();
  const first = await call('POST', `/v1/runs/${runId}/cancel`, { headers: { 'idempotency-key': key } });
  const second = await call('POST', `/v1/runs/${runId}/cancel`, { headers: { 'idempotency-key': key } });
  assert.deepEqual([first.status, second.status, second.text], [200, 200, first.text]);
  assert.equal(core.cancelled.filter((id) => id === runId).length, 1);
  await until('the cancelled run is shown', () => core.run(runId).status === 'cancelled');
});
