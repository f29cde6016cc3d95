import assert from 'node:assert/strict';
import { randomBytes, X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { keyFile } from '../../src/admin/encryption-key-file.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Agent } from '../../src/domain/nouns.ts';
import { createCursors } from '../../src/domain/paging.ts';
import { createSecretBroker } from '../../src/egress/broker/secret-broker.ts';
import { createBrokerRecords } from '../../src/services/broker-records.ts';
import { createEncryptionKeys } from '../../src/services/encryption-keys.ts';
import { createSecrets } from '../../src/services/secrets.ts';
import { createSandboxBrokerStore } from '../../src/store/sandbox-brokers.ts';
import { markSandboxEnded } from '../../src/store/sandbox-rows.ts';
import { createSealedRowStore } from '../../src/store/sealed-rows.ts';
import { createSettingsStore } from '../../src/store/settings.ts';
import { silentLog } from '../support/log.ts';
import { resourceWorld, type World } from '../support/resources.ts';
import { everythingStored } from '../support/stored-text.ts';

let world: World;
let agent: Agent;
let folder: string;
let secrets: ReturnType<typeof createSecrets>;
let encryption: ReturnType<typeof createEncryptionKeys>;
before(async () => {
  world = await resourceWorld();
  folder = mkdtempSync(join(tmpdir(), 'berth-broker-'));
  agent = await world.agents.create(world.owner, { name: 'Careful' });
  encryption = createEncryptionKeys({
    db: world.db,
    settings: createSettingsStore(world.db),
    sealedRows: createSealedRowStore(world.db),
    source: keyFile(join(folder, 'encryption-key')),
  });
  await encryption.prepare();
  secrets = createSecrets({
    db: world.db,
    ...world.stores,
    box: encryption.box,
    holdEncryptionKey: encryption.hold,
    cursors: createCursors(randomBytes(32)),
    modelKeyNames: () => [],
    hostRules: { allowLocal: false },
    log: silentLog,
  });
});
after(async () => {
  await world.close();
  rmSync(folder, { recursive: true });
});

/** The broker of one process of the service. */
function brokerOf() {
  const { db } = world;
  const records = createBrokerRecords({
    db,
    sandboxBrokers: createSandboxBrokerStore(db),
    box: encryption.box,
    holdEncryptionKey: encryption.hold,
  });
  return createSecretBroker({ secrets, records, authorities: 'PUBLIC AUTHORITIES\n', log: silentLog });
}

const setState = (id: string, state: string) =>
  world.db.sql`update sandboxes set state = ${state} where id = ${id}`;
const rowCount = async () => (await world.db.sql`select 1 from sandbox_brokers`).length;

async function newSandbox() {
  const sandboxId = newId();
  await world.db.sql.unsafe(`insert into sandboxes ${await columnsOf()} values ${await valuesOf(sandboxId)}`);
  return { owner: { agentId: agent.id, sandboxId }, runDir: mkdtempSync(join(folder, 'run-')) };
}

/** Whatever columns a sandbox has that must not be empty, so that this test says nothing about the others. */
async function requiredColumns() {
  return world.db.sql<{ name: string; type: string }[]>`
    select column_name as name, data_type as type from information_schema.columns
    where table_name = 'sandboxes' and table_schema = 'public' and is_nullable = 'NO' and column_default is null
    order by ordinal_position`;
}
const columnsOf = async () => `(${(await requiredColumns()).map(({ name }) => name).join(', ')})`;
async function valuesOf(id: string): Promise<string> {
  const special: Record<string, string> = { id, agent_id: agent.id, state: 'starting' };
  const values = (await requiredColumns()).map(({ name, type }) => {
    if (special[name]) return `'${special[name]}'`;
    if (type === 'uuid') return `'${newId()}'`;
    return type === 'text' ? `'x'` : '0';
  });
  return `(${values.join(', ')})`;
}

test('a sandbox of an agent without brokered secrets gets nothing', async () => {
  const { owner, runDir } = await newSandbox();
  const broker = brokerOf();
  await secrets.put(world.owner, agent.id, 'PLAIN', { value: 'a plain value' });
  assert.deepEqual(await broker.open(owner, runDir), {});
  assert.equal(broker.interceptorOf(owner.sandboxId), null);
  assert.equal(await rowCount(), 0);
  // What was added while it runs it neither knows nor believes.
  await setState(owner.sandboxId, 'running');
  await secrets.put(world.owner, agent.id, 'TOKEN', {
    value: 'a brokered value',
    hosts: ['api.example.com'],
  });
  assert.deepEqual(await broker.open(owner, runDir), {});
  assert.equal(broker.interceptorOf(owner.sandboxId), null);
});

test('a start brings placeholders, files and variables; the next process of the service goes on with the same', async () => {
  const { owner, runDir } = await newSandbox();
  const first = brokerOf();
  const env = await first.open(owner, runDir);
  assert.match(env['TOKEN']!, /^berth_ph_[0-9a-f]{40}$/);
  assert.equal(env['PLAIN'], undefined);
  assert.equal(env['NODE_EXTRA_CA_CERTS'], '/run/berth/ca.pem');
  for (const name of [
    'SSL_CERT_FILE',
    'REQUESTS_CA_BUNDLE',
    'GIT_SSL_CAINFO',
    'CURL_CA_BUNDLE',
    'PIP_CERT',
  ]) {
    assert.equal(env[name], '/run/berth/ca-bundle.pem');
  }
  const certificate = readFileSync(join(runDir, 'ca.pem'), 'utf8');
  assert.equal(readFileSync(join(runDir, 'ca-bundle.pem'), 'utf8'), `PUBLIC AUTHORITIES\n${certificate}`);
  assert.equal(statSync(join(runDir, 'ca.pem')).mode & 0o777, 0o644);
  const target = { host: 'api.example.com', port: 443 };
  assert.equal(first.interceptorOf(owner.sandboxId)?.takes(target), true);
  first.close(owner.sandboxId);
  assert.equal(first.interceptorOf(owner.sandboxId), null);

  await setState(owner.sandboxId, 'running');
  await encryption.rotate();
  const second = brokerOf();
  assert.deepEqual(await second.open(owner, runDir), {});
  const interceptor = second.interceptorOf(owner.sandboxId)!;
  assert.equal(interceptor.takes(target), true);
  const verdict = interceptor.plainRequest(
    { host: 'evil.example.net', port: 80 },
    {
      method: 'GET',
      path: `/${env['TOKEN']}`,
      headers: [],
    },
  );
  assert.equal(verdict.kind, 'refuse');
  assert.equal(readFileSync(join(runDir, 'ca.pem'), 'utf8'), certificate);

  const stored = await everythingStored(world.db);
  const publicKey = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' });
  for (const text of [env['TOKEN']!, 'a brokered value', publicKey.toString('hex')])
    assert.equal(stored.includes(text), false);
});

test('a start after the last brokered secret was deleted has no placeholder, and its hosts are still searched', async () => {
  await secrets.put(world.owner, agent.id, 'LATELY', { value: 'a late value', hosts: ['late.example.com'] });
  for (const key of ['LATELY', 'TOKEN']) await secrets.remove(world.owner, agent.id, key);
  const target = { host: 'late.example.com', port: 443 };
  const one = await newSandbox();
  const first = brokerOf();
  const env = await first.open(one.owner, one.runDir);
  assert.equal(env['LATELY'], undefined);
  assert.equal(first.interceptorOf(one.owner.sandboxId)?.takes(target), true);
  await setState(one.owner.sandboxId, 'running');
  // As after the kill of a service, and after a rotation of the key that what is searched for is sealed under.
  await encryption.rotate();
  const second = brokerOf();
  await second.open(one.owner, one.runDir);
  assert.equal(second.interceptorOf(one.owner.sandboxId)?.takes(target), true);
  const { earlier } = await secrets.brokeredValues(agent.id);
  assert.deepEqual(
    earlier.map(({ key, value }) => [key, value.toString()]),
    [
      ['LATELY', 'a late value'],
      ['TOKEN', 'a brokered value'],
    ],
  );
  await secrets.put(world.owner, agent.id, 'TOKEN', {
    value: 'a brokered value',
    hosts: ['api.example.com'],
  });
});

test('what is kept of a sandbox goes with its end, also when that was not seen', async () => {
  const broker = brokerOf();
  await world.db.sql`delete from sandbox_brokers`;
  const seen = await newSandbox();
  await broker.open(seen.owner, seen.runDir);
  assert.equal(await rowCount(), 1);
  await markSandboxEnded(world.db, seen.owner.sandboxId, 'stopped', 'idle');
  assert.equal(await rowCount(), 0);
  const unseen = await newSandbox();
  await broker.open(unseen.owner, unseen.runDir);
  await setState(unseen.owner.sandboxId, 'stopped');
  const next = await newSandbox();
  await broker.open(next.owner, next.runDir);
  const rows = await world.db.sql<{ id: string }[]>`select sandbox_id as id from sandbox_brokers`;
  assert.deepEqual(
    rows.map(({ id }) => id),
    [next.owner.sandboxId],
  );
});
