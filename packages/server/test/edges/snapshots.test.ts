import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';

let world: EdgeWorld;
let workspace: string;
before(async () => {
  world = await edgeWorld();
  workspace = join(world.volumesDir, world.agent.id, 'workspace');
  mkdirSync(workspace, { recursive: true });
});
after(() => world.close());

const ask = (method: string, path: string, body?: object) =>
  world.call(method, `/sandbox/${world.agent.id}/snapshots${path}`, {
    key: world.keys.owner,
    ...(body && { body }),
  });

test('a snapshot that is deleted while its restore waits is not found, and nothing is replaced', async () => {
  writeFileSync(join(workspace, 'file'), 'old');
  const { id } = ((await ask('POST', '', {})).json as { snapshot: { id: string } }).snapshot;
  writeFileSync(join(workspace, 'file'), 'new');
  const { quiesce } = world.sandboxHost;
  world.sandboxHost.quiesce = async (agentId, how, work) => {
    assert.equal((await ask('DELETE', `/${id}`)).status, 204);
    return quiesce(agentId, how, work);
  };
  try {
    assert.equal((await ask('POST', `/${id}/restore`, {})).status, 404);
  } finally {
    world.sandboxHost.quiesce = quiesce;
  }
  assert.equal(readFileSync(join(workspace, 'file'), 'utf8'), 'new');
});

test('what a restore reads stays until it was read, also when its snapshot is deleted meanwhile', async () => {
  writeFileSync(join(workspace, 'file'), 'old');
  const { id } = ((await ask('POST', '', {})).json as { snapshot: { id: string } }).snapshot;
  writeFileSync(join(workspace, 'file'), 'new');
  const restored = ask('POST', `/${id}/restore`, {});
  const [deleted, { status }] = await Promise.all([ask('DELETE', `/${id}`), restored]);
  assert.equal(deleted.status, 204);
  assert.ok(status === 200 || status === 404, String(status));
  assert.equal(readFileSync(join(workspace, 'file'), 'utf8'), status === 200 ? 'old' : 'new');
});

test('an agent has no more snapshots than it may, however many are asked for at once', async () => {
  const most = limits.snapshotsPerAgent;
  const answers = await Promise.all(Array.from({ length: most + 10 }, () => ask('POST', '', {})));
  const count = (status: number) => answers.filter((answer) => answer.status === status).length;
  assert.deepEqual([count(201), count(409)], [most, 10]);
});
