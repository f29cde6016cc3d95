import assert from 'node:assert/strict';
import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { tarEnd, tarHeader, type TarEntry } from '../../src/domain/tar.ts';
import { at, textOf, volumeWorld, type VolumeWorld } from './world.ts';

const worlds: VolumeWorld[] = [];
after(() => worlds.forEach((world) => world.end()));
const newWorld = () => {
  const world = volumeWorld('/dev/shm');
  worlds.push(world);
  return world;
};
const limits = { maxBytes: 100_000_000, maxEntries: 100_000 };
/** More than are read or sorted in one go. */
const MANY = 4_500;
const EACH = 1_500;
/** Entries between which everybody else must have had a turn. */
const FEW = 100;
const nameOf = (index: number): string => `f${String(index).padStart(6, '0')}`;

/** An archive that counts what was taken of it. */
function manyEntries(kind: TarEntry['kind'], number = MANY, order = (index: number): number => index) {
  const counted = { taken: 0, entries };
  async function* entries() {
    const target = Buffer.from(kind === 'symlink' ? 'nowhere' : '');
    const facts = { kind, target, mode: 0o644, mtimeSeconds: 1_700_000_000, sizeBytes: 0 };
    for (; counted.taken < number; counted.taken += 1)
      yield tarHeader({ ...facts, path: Buffer.from(nameOf(order(counted.taken))) });
    yield tarEnd;
  }
  return counted;
}

/** The most that a count grew by between two turns of the event loop, while something was done. */
async function mostInATurn(work: Promise<unknown>, count: () => number): Promise<number> {
  let most = 0;
  let before = count();
  let isDone = false;
  const done = work.finally(() => (isDone = true));
  const look = (): void => {
    const now = count();
    most = Math.max(most, now - before);
    before = now;
    if (!isDone) setImmediate(look);
  };
  setImmediate(look);
  await done;
  look();
  return most;
}

for (const kind of ['file', 'symlink'] as const) {
  test(`others get their turn while an archive of many entries is unpacked and moved to its place: ${kind}`, async () => {
    const { volumes, volumeDir, workspace } = newWorld();
    // A folder that is there already, so that each entry is moved by itself.
    await volumes.makeFolder(volumeDir, at('many'));
    const archive = manyEntries(kind);
    let moved = 0;
    const isThere = (name: string) =>
      lstatSync(join(workspace, 'many', name), { throwIfNoEntry: false }) !== undefined;
    const most = { taken: 0, moved: 0 };
    const work = volumes.unpack(volumeDir, at('many'), archive.entries(), limits);
    [most.taken, most.moved] = await Promise.all([
      mostInATurn(work, () => archive.taken),
      mostInATurn(work, () => {
        while (moved < MANY && isThere(nameOf(moved))) moved += 1;
        return moved;
      }),
    ]);
    assert.deepEqual([archive.taken, moved], [MANY, MANY]);
    assert.ok(most.taken <= FEW && most.moved <= FEW, JSON.stringify(most));
  });
}

test('several archives that are unpacked at once take together no more of a turn, and come on alike', async () => {
  const { volumes, volumeDir } = newWorld();
  const archives = Array.from({ length: 4 }, () => manyEntries('symlink', EACH));
  let leastAtTheFirstEnd: number | null = null;
  const count = (): number => {
    const taken = archives.map((archive) => archive.taken);
    if (taken.includes(EACH)) leastAtTheFirstEnd ??= Math.min(...taken);
    return taken.reduce((sum, one) => sum + one, 0);
  };
  const work = Promise.all(
    archives.map((archive, index) =>
      volumes.unpack(volumeDir, at(`many${index}`), archive.entries(), limits),
    ),
  );
  const most = await mostInATurn(work, count);
  assert.ok(most <= FEW, String(most));
  assert.ok(leastAtTheFirstEnd !== null && leastAtTheFirstEnd > EACH / 4, String(leastAtTheFirstEnd));
});

test('a folder of many names is archived in their order', async () => {
  const { volumes, volumeDir } = newWorld();
  // A prime: every index once, in no order.
  const archive = manyEntries('file', MANY, (index) => (index * 1_009) % MANY);
  await volumes.unpack(volumeDir, at('many'), archive.entries(), limits);
  const packed = await textOf(await volumes.archive(volumeDir, at('many')));
  const names = Array.from({ length: MANY }, (_, index) =>
    packed.toString('latin1', index * 512, index * 512 + 7),
  );
  assert.deepEqual(
    names,
    Array.from({ length: MANY }, (_, index) => nameOf(index)),
  );
});
