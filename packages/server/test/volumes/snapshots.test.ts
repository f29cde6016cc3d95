import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { chunksOf } from '../../src/volumes/chunker.ts';
import { volumeSwap } from '../../src/sandbox/volume-swap.ts';
import { createSnapshotStore } from '../../src/volumes/snapshot.ts';
import { chunks, openFds, tenant, volumeWorld, type VolumeWorld } from './world.ts';

const worlds: VolumeWorld[] = [];
after(() => worlds.forEach((world) => world.end()));
const newWorld = () => {
  const world = volumeWorld();
  worlds.push(world);
  return { ...world, storeDir: join(world.base, 'store') };
};
const store = createSnapshotStore(volumeSwap);
const MAX = 1_000_000_000;
const room = { maxBytes: MAX, maxEntries: 100_000 };
const filesIn = (dir: string) =>
  execFileSync('find', [dir, '-type', 'f'], { encoding: 'utf8' }).trim().split('\n').filter(Boolean);

test('a stream is cut by its content: an insertion changes the chunks around it only', async () => {
  const bytes = randomBytes(12 * 1024 * 1024);
  const cut = async (...parts: Buffer[]) =>
    (await Array.fromAsync(chunksOf(chunks(...parts)))).map((c) => c.toString('base64'));
  const whole = await cut(bytes);
  assert.ok(whole.length >= 4, String(whole.length));
  assert.deepEqual(await cut(bytes.subarray(0, 1_000_003), bytes.subarray(1_000_003)), whole);
  const changed = await cut(bytes.subarray(0, 6_000_000), Buffer.from('inserted'), bytes.subarray(6_000_000));
  const same = changed.filter((chunk) => whole.includes(chunk));
  assert.ok(same.length >= whole.length - 2, `${same.length} of ${whole.length}`);
  assert.equal(Buffer.concat(changed.map((c) => Buffer.from(c, 'base64'))).length, bytes.length + 8);
});

test('a volume comes back as it was: files, modes, owners, links, hard links, home and odd names', async () => {
  const { storeDir, volumeDir, workspace, shell, litter } = newWorld();
  shell(`mkdir -p a/b; echo one > a/b/one; chmod 751 a/b/one; ln a/b/one hard; ln -s /etc/shadow link; mkfifo fifo
    head -c 3000000 /dev/urandom > random; printf x > "$(printf 'n\\nl')"; mkdir empty; echo secret > ../home/.token`);
  const before = shell('find . ! -name fifo -printf "%P %m %s %l %U\\n" | sort; sha256sum random');
  const saved = await store.save(storeDir, volumeDir, MAX);
  assert.ok(saved.storedBytes > 2_900_000 && saved.bytes > 3_000_000);
  shell('rm -rf a random hard; echo changed > new; echo other > ../home/.token');
  await store.restore(storeDir, volumeDir, saved.chunks, room);
  assert.equal(shell('find . -printf "%P %m %s %l %U\\n" | sort; sha256sum random'), before);
  assert.equal(readFileSync(join(volumeDir, 'home', '.token'), 'utf8'), 'secret\n');
  assert.equal(statSync(join(workspace, 'hard')).ino, statSync(join(workspace, 'a/b/one')).ino);
  assert.equal(statSync(workspace).mode & 0o777, 0o700);
  if (tenant) assert.equal(statSync(workspace).uid, tenant.uid);
  assert.deepEqual(litter(), []);
});

test('what is stored already is not stored again, and what nothing needs is swept away', async () => {
  const { storeDir, volumeDir, shell } = newWorld();
  shell('head -c 8000000 /dev/urandom > big; echo 1 > small');
  const first = await store.save(storeDir, volumeDir, MAX);
  const again = await store.save(storeDir, volumeDir, MAX);
  assert.deepEqual([again.storedBytes, again.chunks], [0, first.chunks]);
  shell('echo 2 > small');
  const second = await store.save(storeDir, volumeDir, MAX);
  assert.ok(second.storedBytes < 4_500_000, String(second.storedBytes));
  await store.sweep(storeDir, new Set(second.chunks.map(({ hash }) => hash)));
  assert.equal(filesIn(storeDir).length, new Set(second.chunks.map(({ hash }) => hash)).size);
  await store.restore(storeDir, volumeDir, second.chunks, room);
  await store.sweep(storeDir, new Set());
  assert.deepEqual(filesIn(storeDir), []);
});

test('a chunk that is damaged or missing is noticed, and the volume stays as it is', async () => {
  const { storeDir, volumeDir, workspace, shell, litter } = newWorld();
  shell('head -c 3000000 /dev/urandom > big');
  const { chunks: all } = await store.save(storeDir, volumeDir, MAX);
  shell('rm big; echo present > now');
  const before = openFds(volumeDir);
  const path = join(storeDir, all[0]!.hash.slice(0, 2), all[0]!.hash);
  const good = readFileSync(path);
  for (const bad of [
    Buffer.from('nonsense'),
    good.subarray(0, 1000),
    Buffer.concat([good.subarray(0, -1), Buffer.from([good.at(-1)! ^ 1])]),
  ]) {
    writeFileSync(path, bad);
    await assert.rejects(store.restore(storeDir, volumeDir, all, room));
    assert.deepEqual([readdirSync(workspace), litter()], [['now'], []]);
  }
  assert.equal(openFds(volumeDir), before);
});

test('a volume that is too large is not stored, and a hostile tree does not end the service', async () => {
  const { storeDir, volumeDir, shell } = newWorld();
  shell('truncate -s 100M sparse');
  await assert.rejects(
    store.save(storeDir, volumeDir, 50_000_000),
    (error: { code?: string }) => error.code === 'body_too_large',
  );
  const sparse = await store.save(storeDir, volumeDir, MAX);
  // A hundred mebibytes of zeros are one chunk, many times.
  assert.ok(sparse.storedBytes < 100_000, String(sparse.storedBytes));
  shell(
    'rm sparse; mkdir deep; cd deep; for i in $(seq 8); do p=$(yes a | head -40 | tr "\\n" /); mkdir -p $p; cd -P $p; done',
  );
  await assert.rejects(
    store.save(storeDir, volumeDir, MAX),
    (error: { code?: string }) => error.code === 'conflict',
  );
});
