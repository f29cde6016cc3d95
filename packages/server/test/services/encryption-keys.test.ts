import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { keyFile, KeyFileError, keyVariable } from '../../src/admin/encryption-key-file.ts';
import { newId } from '../../src/domain/ids.ts';
import { createCursors } from '../../src/domain/paging.ts';
import type { KeySource } from '../../src/domain/ports/key-source.ts';
import { idempotencyContext } from '../../src/domain/seal-context.ts';
import { createEncryptionKeys, EncryptionKeyError } from '../../src/services/encryption-keys.ts';
import { createSecrets } from '../../src/services/secrets.ts';
import { createSealedRowStore } from '../../src/store/sealed-rows.ts';
import type { SealedRowStore } from '../../src/store/sealed-rows.ts';
import { createSettingsStore } from '../../src/store/settings.ts';
import { silentLog } from '../support/log.ts';
import { resourceWorld } from '../support/resources.ts';
import type { World } from '../support/resources.ts';
import { until } from '../support/until.ts';

let world: World;
let dir: string;
let fileCount = 0;
before(async () => {
  world = await resourceWorld();
  dir = mkdtempSync(join(tmpdir(), 'berth-keys-'));
});
after(async () => {
  await world.close();
  rmSync(dir, { recursive: true, force: true });
});

const newPath = () => join(dir, `key-${(fileCount += 1)}`);
const linesOf = (path: string) => readFileSync(path, 'utf8').trim().split('\n');

/** As one process of the service would hold them. */
function keysOf(source: KeySource, sealedRows: SealedRowStore = createSealedRowStore(world.db)) {
  const keys = createEncryptionKeys({
    db: world.db,
    settings: createSettingsStore(world.db),
    sealedRows,
    source,
  });
  const secrets = createSecrets({
    db: world.db,
    ...world.stores,
    box: keys.box,
    holdEncryptionKey: keys.hold,
    cursors: createCursors(randomBytes(32)),
    modelKeyNames: () => [],
    hostRules: { allowLocal: false },
    log: silentLog,
  });
  return { ...keys, box: keys.box, secrets };
}

/** A database without sealed rows, as every test here begins. */
async function clean(): Promise<void> {
  await world.db.sql`delete from secrets`;
  await world.db.sql`delete from idempotency`;
}

async function sealIdempotency(keys: ReturnType<typeof keysOf>, keyId: string, name: string): Promise<void> {
  const { sealed, wrappedKey, kekId } = keys.box.seal(
    Buffer.from(`body of ${name}`),
    idempotencyContext(keyId, name),
  );
  await world.db.sql`
    insert into idempotency (key_id, idempotency_key, request_hash, status, sealed_body, wrapped_key, kek_id)
    values (${keyId}, ${name}, 'hash', 201, ${sealed}, ${wrappedKey}, ${kekId})`;
}

async function openIdempotency(
  keys: ReturnType<typeof keysOf>,
  keyId: string,
  name: string,
): Promise<string> {
  const [row] = await world.db.sql<{ sealed: Buffer; wrappedKey: Buffer; kekId: string }[]>`
    select sealed_body as sealed, wrapped_key as "wrappedKey", kek_id as "kekId" from idempotency
    where key_id = ${keyId} and idempotency_key = ${name}`;
  return keys.box.open(row!, idempotencyContext(keyId, name)).toString();
}

test('the first start makes a key file for its owner only, and the second keeps it', async () => {
  await clean();
  const path = newPath();
  await keysOf(keyFile(path)).prepare();
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.match(readFileSync(path, 'utf8'), /^[0-9a-f]{64}\n$/);
  const first = readFileSync(path, 'utf8');
  await keysOf(keyFile(path)).prepare();
  assert.equal(readFileSync(path, 'utf8'), first);
});

test('a key file that others can read, or that holds something else, is refused with its name', () => {
  const path = newPath();
  writeFileSync(path, `${'ab'.repeat(32)}\n`, { mode: 0o600 });
  assert.equal(keyFile(path).read().length, 1);
  for (const mode of [0o640, 0o604, 0o660]) {
    chmodSync(path, mode);
    const refused = (error: Error) =>
      error instanceof KeyFileError && error.message.includes(`chmod 600 ${path}`);
    assert.throws(() => keyFile(path).read(), refused);
  }
  chmodSync(path, 0o600);
  for (const text of ['', 'abc\n', `${'ab'.repeat(32)} x\n`]) {
    writeFileSync(path, text);
    assert.throws(
      () => keyFile(path).read(),
      (error: Error) => {
        return (
          error instanceof KeyFileError &&
          error.message.includes(path) &&
          (text === '' || !error.message.includes(text.trim()))
        );
      },
    );
  }
});

test('a database with secrets of a key that is not there is refused, and no new key is made', async () => {
  await clean();
  const agent = await world.agents.create(world.owner, { name: 'Sealed' });
  const path = newPath();
  const keys = keysOf(keyFile(path));
  await keys.prepare();
  await keys.secrets.put(world.owner, agent.id, 'K', { value: 'v' });
  const lost = newPath();
  await assert.rejects(keysOf(keyFile(lost)).prepare(), (error: Error) => {
    return (
      error instanceof EncryptionKeyError &&
      error.message.includes(keys.box.kekId) &&
      error.message.includes(lost)
    );
  });
  assert.equal(statSync(lost, { throwIfNoEntry: false }), undefined);
  const other = newPath();
  writeFileSync(other, `${'cd'.repeat(32)}\n`, { mode: 0o600 });
  await assert.rejects(keysOf(keyFile(other)).prepare(), EncryptionKeyError);
  await keysOf(keyFile(path)).prepare();
});

test('a rotation wraps everything anew, removes the old key, and running services follow it', async () => {
  await clean();
  const agent = await world.agents.create(world.owner, { name: 'Rotated' });
  const path = newPath();
  const service = keysOf(keyFile(path));
  await service.prepare();
  const oldId = service.box.kekId;
  const keyId = newId();
  for (let i = 0; i < 5; i += 1)
    await service.secrets.put(world.owner, agent.id, `S${i}`, { value: `v${i}` });
  await sealIdempotency(service, keyId, 'one');
  const [before] = linesOf(path);

  const result = await keysOf(keyFile(path)).rotate();
  assert.deepEqual([result.rewrapped, result.oldKeysRemoved], [6, true]);
  assert.notEqual(result.kekId, oldId);
  assert.equal(linesOf(path).length, 1);
  assert.notEqual(linesOf(path)[0], before);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const [{ left }] = await world.db.sql<[{ left: bigint }]>`
    select (select count(*) from secrets where kek_id = ${oldId})
         + (select count(*) from idempotency where kek_id = ${oldId}) as left`;
  assert.equal(Number(left), 0);

  await service.secrets.put(world.owner, agent.id, 'S5', { value: 'v5' });
  const expected = Object.fromEntries(Array.from({ length: 6 }, (_, i) => [`S${i}`, `v${i}`]));
  for (const reader of [service, keysOf(keyFile(path))]) {
    assert.deepEqual(await reader.secrets.valuesForSandbox(agent.id), expected);
    assert.equal(await openIdempotency(reader, keyId, 'one'), 'body of one');
  }
});

test('a rotation that is killed at any step loses nothing, and the next one ends it', async () => {
  const agent = await world.agents.create(world.owner, { name: 'Killed' });
  let completed = false;
  let killings = 0;
  for (let stopAt = 1; !completed; stopAt += 1) {
    await clean();
    const path = newPath();
    const service = keysOf(keyFile(path));
    await service.prepare();
    const keyId = newId();
    for (let i = 0; i < 3; i += 1)
      await service.secrets.put(world.owner, agent.id, `S${i}`, { value: `v${i}` });
    await sealIdempotency(service, keyId, 'one');

    const killed = killedAt(stopAt, path);
    completed = await killed.rotate().then(
      () => true,
      (error: Error) => {
        assert.equal(error.message, 'killed');
        killings += 1;
        return false;
      },
    );
    const check = async (keys: ReturnType<typeof keysOf>, extra: Record<string, string> = {}) => {
      assert.deepEqual(await keys.secrets.valuesForSandbox(agent.id), {
        S0: 'v0',
        S1: 'v1',
        S2: 'v2',
        ...extra,
      });
      assert.equal(await openIdempotency(keys, keyId, 'one'), 'body of one');
    };
    await check(service);
    const restarted = keysOf(keyFile(path));
    await restarted.prepare();
    await check(restarted);
    await restarted.secrets.put(world.owner, agent.id, 'S3', { value: 'v3' });
    await keysOf(keyFile(path)).rotate();
    assert.equal(linesOf(path).length, 1);
    await check(service, { S3: 'v3' });
    await check(keysOf(keyFile(path)), { S3: 'v3' });
  }
  assert.ok(killings > 10, `the rotation was killed at ${killings} steps`);
});

/** Keys whose rotation stops for ever at its nth step: before or after a write of the file, or at a statement. */
function killedAt(stopAt: number, path: string): ReturnType<typeof keysOf> {
  let steps = 0;
  const step = () => {
    steps += 1;
    if (steps >= stopAt) throw new Error('killed');
  };
  const file = keyFile(path);
  const source: KeySource = {
    ...file,
    replace(keys) {
      step();
      file.replace!(keys);
      step();
    },
  };
  const rows = createSealedRowStore(world.db);
  return keysOf(source, {
    secretKeyIds: rows.secretKeyIds,
    async someUnder(kekIds) {
      step();
      // One row at a time, so that there is something between two batches.
      return rows.someUnder(kekIds, 1);
    },
    async rewrap(row) {
      step();
      await rows.rewrap(row);
    },
    async holdWriters() {
      step();
      await rows.holdWriters();
    },
  });
}

test('secrets that are set while keys are rotated are all readable in the end', async () => {
  await clean();
  const agents = await Promise.all(
    [1, 2, 3].map((i) => world.agents.create(world.owner, { name: `Busy ${i}` })),
  );
  const path = newPath();
  const services = [keysOf(keyFile(path)), keysOf(keyFile(path))];
  await services[0]!.prepare();
  const expected = new Map(agents.map((agent) => [agent.id, {} as Record<string, string>]));
  let rotating = true;
  const writers = agents.map(async ({ id }, index) => {
    for (let i = 0; rotating && i < 90; i += 1) {
      await services[(index + i) % 2]!.secrets.put(world.owner, id, `S${i}`, { value: `v${i}` });
      expected.get(id)![`S${i}`] = `v${i}`;
    }
  });
  for (let i = 0; i < 6; i += 1) {
    await Promise.all([keysOf(keyFile(path)).rotate(), ...(i % 2 ? [keysOf(keyFile(path)).rotate()] : [])]);
  }
  rotating = false;
  await Promise.all(writers);
  await keysOf(keyFile(path)).rotate();
  assert.equal(linesOf(path).length, 1);
  for (const { id } of agents) {
    assert.ok(Object.keys(expected.get(id)!).length > 0);
    assert.deepEqual(await keysOf(keyFile(path)).secrets.valuesForSandbox(id), expected.get(id));
  }
});

test('a service that starts while keys are rotated finds the keys of all that it reads, and sets secrets by one that stays', async () => {
  await clean();
  const agent = await world.agents.create(world.owner, { name: 'Early' });
  const path = newPath();
  const service = keysOf(keyFile(path));
  await service.prepare();
  await service.secrets.put(world.owner, agent.id, 'K', { value: 'v' });
  const [read, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const rows = createSealedRowStore(world.db);
  const starting = keysOf(keyFile(path), {
    ...rows,
    async secretKeyIds() {
      const used = await rows.secretKeyIds();
      read.resolve();
      await go.promise;
      return used;
    },
  });
  const started = starting.prepare();
  await read.promise;
  let isRotated = false;
  const rotated = keysOf(keyFile(path))
    .rotate()
    .then(() => (isRotated = true));
  await until('the rotation is over, or waits for the start', async () => {
    const waiting = await world.db.sql`
      select 1 from pg_locks where locktype = 'advisory' and not granted
        and database = (select oid from pg_database where datname = current_database())`;
    return isRotated || waiting.length > 0;
  });
  go.resolve();
  await Promise.all([started, rotated]);
  await starting.secrets.put(world.owner, agent.id, 'L', { value: 'w' });
  assert.deepEqual(await service.secrets.valuesForSandbox(agent.id), { K: 'v', L: 'w' });
});

test('a secret is deleted only while the key stays by which what it was is kept', async () => {
  await clean();
  const agent = await world.agents.create(world.owner, { name: 'Deleted' });
  const service = keysOf(keyFile(newPath()));
  await service.prepare();
  await service.secrets.put(world.owner, agent.id, 'K', { value: 'the value', hosts: ['api.example.com'] });
  const [named, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const naming = world.db.tx(async () => {
    await createSettingsStore(world.db).set('encryption_key_id', service.box.kekId);
    named.resolve();
    await go.promise;
  });
  await named.promise;
  let isDeleted = false;
  const deleted = service.secrets.remove(world.owner, agent.id, 'K').then(() => (isDeleted = true));
  await until('it is deleted, or waits for the name of the key', async () => {
    const waiting = await world.db.sql`
      select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    return isDeleted || waiting.length > 0;
  });
  assert.equal(isDeleted, false);
  go.resolve();
  await Promise.all([naming, deleted]);
});

test('a service with a stale copy of the key file refuses to set a secret rather than to lose it', async () => {
  await clean();
  const agent = await world.agents.create(world.owner, { name: 'Stale' });
  const path = newPath();
  const stale = newPath();
  const service = keysOf(keyFile(path));
  await service.prepare();
  writeFileSync(stale, readFileSync(path), { mode: 0o600 });
  const other = keysOf(keyFile(stale));
  await other.secrets.put(world.owner, agent.id, 'K', { value: 'v' });
  await service.rotate();
  await assert.rejects(other.secrets.put(world.owner, agent.id, 'K', { value: 'w' }), {
    code: 'unavailable',
  });
  writeFileSync(stale, readFileSync(path));
  await other.secrets.put(world.owner, agent.id, 'K', { value: 'w' });
  assert.deepEqual(await service.secrets.valuesForSandbox(agent.id), { K: 'w' });
});

test('a key in the variable takes over from the file by a rotation, and the file is left alone', async () => {
  await clean();
  const agent = await world.agents.create(world.owner, { name: 'Variable' });
  const path = newPath();
  const before = keysOf(keyFile(path));
  await before.prepare();
  await before.secrets.put(world.owner, agent.id, 'K', { value: 'v' });
  const digits = randomBytes(32).toString('hex');
  const { oldKeysRemoved, rewrapped } = await keysOf(keyVariable(digits, keyFile(path))).rotate();
  assert.deepEqual([oldKeysRemoved, rewrapped], [false, 1]);
  const alone = keysOf(keyVariable(digits, keyFile(newPath())));
  await alone.prepare();
  assert.deepEqual(await alone.secrets.valuesForSandbox(agent.id), { K: 'v' });
});
