import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { TestContext } from 'node:test';
import { bootstrapKeyFile } from '../../src/admin/bootstrap-key-file.ts';
import { newKeyValue } from '../../src/domain/api-key-value.ts';
import { bootstrap, createHostKey } from '../../src/services/bootstrap.ts';
import type { BootstrapDependencies } from '../../src/services/bootstrap.ts';
import { createSettingsStore } from '../../src/store/settings.ts';
import { testDatabase } from '../support/database.ts';
import { memoryBells } from '../support/memory-doorbell.ts';
import { memoryRepos } from '../support/memory-repos.ts';
import { createResources } from '../support/resources.ts';
import { everythingStored } from '../support/stored-text.ts';

let dir: string;
let fileCount = 0;
before(() => {
  dir = mkdtempSync(join(tmpdir(), 'berth-bootstrap-'));
});
after(() => rmSync(dir, { recursive: true, force: true }));

async function fresh(t: TestContext) {
  const { db, close } = await testDatabase();
  const resources = createResources(db, memoryBells(), memoryRepos());
  t.after(async () => {
    await resources.auth.close();
    await close();
  });
  const path = join(dir, `bootstrap-key-${(fileCount += 1)}`);
  const deps: BootstrapDependencies = {
    db,
    ...resources.stores,
    settings: createSettingsStore(db),
    repos: resources.repos,
    defaultModel: () => 'demo/guide',
    keyFile: bootstrapKeyFile(path),
  };
  return { ...resources, deps, path };
}

test('the first start makes a key in a file, an agent to talk to, and the second changes nothing', async (t) => {
  const { deps, path, auth, agents } = await fresh(t);
  const first = await bootstrap(deps);
  assert.ok(first.made);
  assert.equal(readFileSync(path, 'utf8'), `${first.made.keyValue}\n`);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const caller = await auth.authenticate(first.made.keyValue);
  assert.deepEqual([caller.scope, caller.binding, caller.orgId], ['edit', 'org-bound', first.orgId]);
  const agent = await agents.get(caller, first.made.agentId);
  assert.equal(agent.model, 'demo/guide');
  const commit = (await deps.repos.resolve(agent.id, 'main'))!;
  assert.ok(await deps.repos.readFile(agent.id, commit, 'hello.sh', 10_000));
  assert.ok(await deps.repos.readFile(agent.id, commit, 'AGENTS.md', 10_000));

  const stored = await everythingStored(deps.db);
  const second = await bootstrap(deps);
  assert.deepEqual(second, { ...first, made: null });
  assert.equal(await everythingStored(deps.db), stored);
  assert.equal(readFileSync(path, 'utf8'), `${first.made.keyValue}\n`);
});

test('replicas that start at the same moment make one organisation', async (t) => {
  const { deps } = await fresh(t);
  const results = await Promise.all([1, 2, 3, 4].map(() => bootstrap(deps)));
  assert.equal(results.filter(({ made }) => made).length, 1);
  assert.equal(new Set(results.map(({ orgId }) => orgId)).size, 1);
  assert.equal(new Set(results.map(({ cursorSecret }) => cursorSecret.toString('hex'))).size, 1);
});

test('a first start that is killed at any step leaves nothing, or a service whose key is in the file', async (t) => {
  for (const point of ['before the file', 'after the file'] as const) {
    const { deps, path, auth } = await fresh(t);
    const keyFile = {
      read: deps.keyFile.read,
      write(text: string) {
        if (point === 'after the file') deps.keyFile.write(text);
        throw new Error('killed');
      },
    };
    await assert.rejects(bootstrap({ ...deps, keyFile }), /killed/, point);
    assert.equal(await deps.orgs.first(), null, point);
    const left = deps.keyFile.read();
    const { made } = await bootstrap(deps);
    assert.equal(readFileSync(path, 'utf8'), `${made!.keyValue}\n`);
    if (left !== null)
      assert.equal(left, `${made!.keyValue}\n`, 'whoever has read the file already can use its key');
    await auth.authenticate(made!.keyValue);
  }
});

test('a lost or replaced key file is told, and a key made on the host helps', async (t) => {
  const { deps, path, auth, agents, apiKeys } = await fresh(t);
  const { made, orgId } = await bootstrap(deps);
  rmSync(path);
  assert.equal((await bootstrap(deps)).keyFile, 'missing');
  for (const text of ['nonsense', newKeyValue().value]) {
    writeFileSync(path, text, { mode: 0o600 });
    assert.equal((await bootstrap(deps)).keyFile, 'unusable');
  }
  writeFileSync(path, made!.keyValue);
  assert.equal((await bootstrap(deps)).keyFile, 'usable');

  const { value } = await createHostKey(deps, {
    name: 'host',
    scope: 'edit',
    binding: 'org-bound',
    agentId: null,
  });
  const caller = await auth.authenticate(value);
  assert.equal(caller.orgId, orgId);
  assert.equal((await agents.list(caller, { limit: 50, cursor: null })).items.length, 1);
  await apiKeys.revoke(caller, (await auth.authenticate(made!.keyValue)).keyId);
  assert.equal((await bootstrap(deps)).keyFile, 'unusable');
});

test('a key made on the host is for an agent that exists', async (t) => {
  const { deps, auth } = await fresh(t);
  const input = { name: 'host', scope: 'use', binding: 'agent-bound', agentId: null } as const;
  await assert.rejects(createHostKey(deps, input), { code: 'invalid_request' });
  const { made } = await bootstrap(deps);
  await assert.rejects(createHostKey(deps, input), { code: 'invalid_request' });
  await assert.rejects(createHostKey(deps, { ...input, agentId: 'no-id' }), { code: 'not_found' });
  const { value } = await createHostKey(deps, { ...input, agentId: made!.agentId });
  assert.equal((await auth.authenticate(value)).agentId, made!.agentId);
});
