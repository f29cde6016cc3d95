import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { AdoptedHarness, HarnessConnection } from '../../src/domain/ports/harness.ts';
import type { ModelGateway } from '../../src/domain/ports/model-gateway.ts';
import { adoptSandbox } from '../../src/runtime/sandbox-adopt.ts';
import type { StartDependencies } from '../../src/runtime/sandbox-start.ts';
import type { LiveSandboxRow } from '../../src/services/sandbox-records.ts';
import { FakeSandbox, fakeDriver, fakeLinks } from '../support/fake-sandbox.ts';
import { silentLog } from '../support/log.ts';

const connection = { close: () => undefined } as unknown as HarnessConnection;
const harness: AdoptedHarness = {
  connection,
  unfinished: [],
  begin: () => undefined,
  resume: () => Promise.reject(new Error('There are no turns.')),
};
const id = newId();
const row = { id, orgId: newId(), agentId: newId(), model: 'm/m', tokenHash: '' } as LiveSandboxRow;

/** A sandbox that refuses to be thawed, as on a host where nothing can be frozen. */
async function left(t: TestContext, isFrozen: boolean) {
  const folder = await mkdtemp('/tmp/berth-adopt-');
  const driver = fakeDriver();
  const sandbox = new FakeSandbox({ id } as FakeSandbox['spec']);
  sandbox.thaw = () => Promise.reject(new Error('Sandboxes cannot be frozen here: no cgroup allows it.'));
  driver.live.set(id, sandbox);
  sandbox.isFrozen = isFrozen;
  let opened = 0;
  const openLink = fakeLinks(async () => ({ outcome: 'completed' }));
  const deps = {
    driver,
    paths: { run: folder },
    secrets: { modelKeys: async () => ({}) },
    gateway: () => ({}) as ModelGateway,
    maxModelConnections: 10,
    egress: {
      open: async () => ((opened += 1), { transparent: false, env: {}, close: () => void (opened -= 1) }),
    },
    openLink: async (place: Parameters<typeof openLink>[0]) => ({
      ...(await openLink(place)),
      adopt: async () => harness,
    }),
    log: silentLog,
  } as unknown as StartDependencies;
  await mkdir(join(folder, id));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return { deps, sandbox, openSockets: () => opened };
}

test('where nothing can be frozen, a sandbox of an earlier process is taken up without being thawed', async (t) => {
  const { deps, sandbox, openSockets } = await left(t, false);
  const adopted = await adoptSandbox(deps, row);
  assert.equal(adopted?.sandbox, sandbox);
  assert.equal(adopted?.harness, harness);
  assert.equal(openSockets(), 1);
  adopted?.leave();
  assert.equal(openSockets(), 0);
});

test('one that was left frozen and cannot be thawed is ended, and its sockets are closed', async (t) => {
  const { deps, sandbox, openSockets } = await left(t, true);
  assert.equal(await adoptSandbox(deps, row), null);
  assert.equal((await sandbox.exited).reason, 'killed');
  assert.equal(openSockets(), 0);
});
