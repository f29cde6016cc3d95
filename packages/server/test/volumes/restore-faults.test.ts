import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { volumeSwap } from '../../src/sandbox/volume-swap.ts';
import { prepareVolume } from '../../src/sandbox/volume.ts';
import { clearVolume, restoreVolume } from '../../src/volumes/restore.ts';
import { chunks, isRoot, tenant, volumeWorld, type VolumeWorld } from './world.ts';

const worlds: VolumeWorld[] = [];
after(() => worlds.forEach((world) => world.end()));

const beforeDecision = ['unpacked', 'on the disk'];
const afterDecision = [
  'decided',
  'workspace is away',
  'workspace is placed',
  'home is away',
  'home is placed',
  'finished',
  'old ones aside',
];

/** A volume with a workspace and home named "old", and beside it a pair named "new". */
function newWorld(parent?: string) {
  const world = volumeWorld(parent);
  worlds.push(world);
  world.shell('echo old > which; mkdir locked; echo x > locked/x; chmod 0 locked; echo old > ../home/which');
  for (const tree of volumeSwap.trees) {
    mkdirSync(join(world.base, 'new', tree), { recursive: true });
    writeFileSync(join(world.base, 'new', tree, 'which'), 'new\n');
  }
  const textsOf = () =>
    volumeSwap.trees.map((tree) => readFileSync(join(world.volumeDir, tree, 'which'), 'utf8').trim());
  return { ...world, textsOf };
}

async function killedAt(what: 'restore' | 'clear', volumeDir: string, step: string): Promise<void> {
  const file = fileURLToPath(new URL('restore-child.ts', import.meta.url));
  const child = spawn(process.execPath, [file, what, volumeDir, step], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const [, signal] = (await once(child, 'close')) as [number | null, string | null];
  assert.equal(signal, 'SIGKILL', errors);
}

function archiveOfNew(base: string): Buffer {
  return execFileSync('tar', ['-C', join(base, 'new'), '-cf', '-', ...volumeSwap.trees], {
    maxBuffer: 16_000_000,
  });
}

const limits = { maxBytes: 1e9, maxEntries: 1000 };

test('a process that is killed at any step of a restore leaves a volume that is all old or all new after the next start', async () => {
  await Promise.all(
    [...beforeDecision, ...afterDecision].map(async (step) => {
      const { volumeDir, textsOf, volumes, base, litter } = newWorld();
      await killedAt('restore', volumeDir, step);
      await volumes.clearInterrupted(base);
      const expected = beforeDecision.includes(step) ? 'old' : 'new';
      assert.deepEqual(textsOf(), [expected, expected], step);
      assert.deepEqual([litter(), existsSync(volumeSwap.nextOf(volumeDir))], [[], false], step);
      if (tenant) assert.equal(statSync(join(volumeDir, 'workspace')).uid, tenant.uid);
    }),
  );
});

test('the next use of the volume finishes it as well, and makes no empty tree in the place of one that was moved', async () => {
  await Promise.all(
    afterDecision.map(async (step) => {
      const { volumeDir, textsOf, litter } = newWorld();
      await killedAt('restore', volumeDir, step);
      await prepareVolume(volumeDir, tenant);
      assert.deepEqual(textsOf(), ['new', 'new'], step);
      await clearVolume(volumeDir, volumeSwap);
      assert.deepEqual([textsOf(), litter()], [['new', 'new'], []], step);
    }),
  );
});

test('finishing it may be killed at any step too', async () => {
  await Promise.all(
    ['workspace is away', 'workspace is placed', 'home is away', 'home is placed'].map(async (step) => {
      const { volumeDir, textsOf, litter } = newWorld();
      await killedAt('restore', volumeDir, 'decided');
      await killedAt('clear', volumeDir, step);
      await clearVolume(volumeDir, volumeSwap);
      assert.deepEqual([textsOf(), litter()], [['new', 'new'], []], step);
    }),
  );
});

test('an error at any step changes nothing, or is made good at once', async () => {
  for (const step of [...beforeDecision, ...afterDecision.slice(0, -1)]) {
    const { volumeDir, textsOf, base, litter } = newWorld();
    const onStep = (at: string): void => {
      if (at === step) throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
    };
    const archive = chunks(archiveOfNew(base));
    const work = restoreVolume({ volumeDir, archive, limits, swap: volumeSwap, onStep });
    const isDecided = afterDecision.includes(step);
    if (isDecided) await work;
    else await assert.rejects(work, (error: { code?: string }) => error.code === 'body_too_large');
    assert.deepEqual([textsOf(), litter()], [isDecided ? ['new', 'new'] : ['old', 'old'], []], step);
    assert.ok(!existsSync(volumeSwap.nextOf(volumeDir)), step);
  }
});

test('a full disk leaves what was there', async (t) => {
  if (!isRoot) return t.skip('a small file system can only be mounted by root');
  const { base: outer } = newWorld();
  const mounted = join(outer, 'small');
  mkdirSync(mounted, { mode: 0o711 });
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4m,mode=711', 'tmpfs', mounted], { stdio: 'pipe' });
  } catch (error) {
    return t.skip(`no file system can be mounted here: ${(error as Error).message.slice(0, 200)}`);
  }
  try {
    const { volumeDir, textsOf, base, litter } = newWorld(mounted);
    const archive = archiveOfNew(base);
    const large = join(outer, 'new', 'workspace', 'large');
    writeFileSync(large, Buffer.alloc(6_000_000, 1));
    const tooLarge = chunks(archiveOfNew(outer));
    await assert.rejects(
      restoreVolume({ volumeDir, archive: tooLarge, limits, swap: volumeSwap }),
      (error: { code?: string }) => error.code === 'body_too_large',
    );
    assert.deepEqual([textsOf(), litter()], [['old', 'old'], []]);
    await restoreVolume({ volumeDir, archive: chunks(archive), limits, swap: volumeSwap });
    assert.deepEqual([textsOf(), readdirSync(join(volumeDir, 'workspace'))], [['new', 'new'], ['which']]);
    rmSync(base, { recursive: true });
  } finally {
    execFileSync('umount', [mounted]);
  }
});
