import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { Agent, Principal } from '../../src/domain/nouns.ts';
import { createSandboxFiles, type SandboxFilesDependencies } from '../../src/services/sandbox-files.ts';
import { createSnapshots, type SnapshotsDependencies } from '../../src/services/snapshots.ts';
import { volumeSwap } from '../../src/sandbox/volume-swap.ts';
import { createSnapshotStore } from '../../src/volumes/snapshot.ts';
import { createVolumes } from '../../src/volumes/volumes.ts';
import { fakeVolumeDriver } from '../support/fake-sandbox-host.ts';

const volumesDir = mkdtempSync(join(tmpdir(), 'berth-volumes-'));
after(() => rmSync(volumesDir, { recursive: true, force: true }));

const orgId = newId();
const owner: Principal = { keyId: newId(), orgId, scope: 'edit', binding: 'org-bound', agentId: null };

type Moment = 'asked' | 'prepared' | 'arriving' | 'waiting';

/** An agent that is deleted, with all its files, at one moment of a request; before the services look at it again. */
function world(moment: Moment) {
  const agent = { id: newId(), orgId, slot: 1 } as Agent;
  const volumeDir = join(volumesDir, agent.id);
  let isDeleted = false;
  const removeAgent = async (): Promise<void> => rmSync(volumeDir, { recursive: true, force: true });
  const at = async (now: Moment): Promise<void> => {
    if (now !== moment || isDeleted) return;
    isDeleted = true;
    await removeAgent();
  };
  const shared = {
    agents: { get: async () => (isDeleted ? null : agent) },
    driver: {
      ...fakeVolumeDriver,
      async prepareVolume(dir: string) {
        await at('asked');
        await fakeVolumeDriver.prepareVolume(dir);
        await at('prepared');
      },
    },
    ...{ volumesDir, removeAgent, diskBytes: 1024 * 1024 },
  };
  const files = createSandboxFiles({
    ...shared,
    deployments: { activeOf: async () => null },
    volumes: createVolumes(volumeSwap),
  } as unknown as SandboxFilesDependencies);
  const snapshots = createSnapshots({
    ...shared,
    snapshots: { countOf: async () => 0, get: async () => ({ bytes: 0 }), chunksOf: async () => [] },
    store: createSnapshotStore(volumeSwap, { minFreeBytes: 0 }),
    snapshotsDir: join(volumesDir, 'snapshots'),
    host: {
      async quiesce(_id: string, _how: string, work: () => Promise<unknown>) {
        await at('waiting');
        return work();
      },
    },
  } as unknown as SnapshotsDependencies);
  async function* content(): AsyncGenerator<Buffer> {
    yield Buffer.alloc(512);
    await at('arriving');
    yield Buffer.alloc(1024);
  }
  return { ...{ agent, files, snapshots, volumeDir }, upload: { bytes: null, content: content() } };
}

type World = ReturnType<typeof world>;
const file = { tree: 'workspace' as const, names: [Buffer.from('a'), Buffer.from('b')] };
const folder = { tree: 'workspace' as const, names: [] };
const free = { match: null, noneMatch: null };

const uploads: Record<string, (made: World) => Promise<unknown>> = {
  write: ({ files, agent, upload }) =>
    files.write(owner, agent.id, file, upload, { mode: null, preconditions: free }),
  unpack: ({ files, agent, upload }) => files.unpack(owner, agent.id, file, upload, free),
};
const restore = ({ snapshots, agent }: World) => snapshots.restore(owner, agent.id, newId(), {});
const all: typeof uploads = {
  ...uploads,
  restore,
  stat: ({ files, agent }) => files.stat(owner, agent.id, folder),
  open: ({ files, agent }) => files.open(owner, agent.id, folder),
  list: ({ files, agent }) => files.list(owner, agent.id, folder, { cursor: null, limit: 10 }),
  archive: ({ files, agent }) => files.archive(owner, agent.id, folder),
  makeFolder: ({ files, agent }) => files.makeFolder(owner, agent.id, file, free),
  remove: ({ files, agent }) => files.remove(owner, agent.id, file, { recursive: true, preconditions: free }),
  create: ({ snapshots, agent }) => snapshots.create(owner, agent.id, {}),
  hold: ({ snapshots, agent }) => snapshots.hold(agent, async () => null),
};

const cases: [Moment, string, typeof uploads][] = [
  ['asked', 'before its folder is made', all],
  ['prepared', 'after its folder was made', all],
  ['arriving', 'while an upload arrives', uploads],
  ['waiting', 'while a restore waits for its sandbox', { restore }],
];

for (const [moment, when, calls] of cases)
  test(`of an agent that is deleted ${when} nothing is left, and whoever asked is told that there is none`, async () => {
    for (const [name, call] of Object.entries(calls)) {
      const made = world(moment);
      await assert.rejects(call(made), { code: 'not_found' }, name);
      assert.equal(existsSync(made.volumeDir), false, name);
    }
  });

test('of an agent that is there its folder stays', async () => {
  const made = world('arriving');
  mkdirSync(made.volumeDir);
  assert.deepEqual(
    (await made.files.list(owner, made.agent.id, folder, { cursor: null, limit: 10 })).items,
    [],
  );
  assert.equal(existsSync(made.volumeDir), true);
});
