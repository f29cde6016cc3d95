import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createCipheriv } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
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
const store = createSnapshotStore(volumeSwap, { minFreeBytes: 0 });
const MAX = 1_000_000_000;
const room = { maxBytes: MAX, maxEntries: 100_000 };
const filesIn = (dir: string) =>
  execFileSync('find', [dir, '-type', 'f'], { encoding: 'utf8' }).trim().split('\n').filter(Boolean);

test('a stream is cut by its content: an insertion changes the chunks around it only', async () => {
  // Without a pattern and the same in each run: of random bytes one in a thousand has so long chunks that three change.
  const bytes = createCipheriv('aes-128-ctr', Buffer.alloc(16), Buffer.alloc(16)).update(
    Buffer.alloc(12 * 1024 * 1024),
  );
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
  // The size of a folder is a matter of the file system, and of names that were in it.
  const facts = '\\( -type d -printf "%P %m %U\\n" -o -printf "%P %m %s %l %U\\n" \\)';
  const before = shell(`find . ! -name fifo ${facts} | sort; sha256sum random`);
  const saved = await store.save(storeDir, volumeDir, MAX);
  assert.ok(saved.storedBytes > 2_900_000 && saved.bytes > 3_000_000);
  shell('rm -rf a random hard; echo changed > new; echo other > ../home/.token');
  await store.restore(storeDir, volumeDir, saved.chunks, room);
  assert.equal(shell(`find . ${facts} | sort; sha256sum random`), before);
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
  shell('truncate -s 32M sparse');
  await assert.rejects(
    store.save(storeDir, volumeDir, 16_000_000),
    (error: { code?: string }) => error.code === 'body_too_large',
  );
  const sparse = await store.save(storeDir, volumeDir, MAX);
  // Many mebibytes of zeros are one chunk, many times.
  assert.ok(sparse.storedBytes < 100_000, String(sparse.storedBytes));
  shell(
    'rm sparse; mkdir deep; cd deep; for i in $(seq 8); do p=$(yes a | head -40 | tr "\\n" /); mkdir -p $p; cd -P $p; done',
  );
  await assert.rejects(
    store.save(storeDir, volumeDir, MAX),
    (error: { code?: string }) => error.code === 'conflict',
  );
});

test('a snapshot that would leave too little of the disk free is refused at once, and in the middle leaves nothing', async () => {
  const { storeDir, volumeDir, shell } = newWorld();
  shell('head -c 9000000 /dev/urandom > first');
  const before = await store.save(storeDir, volumeDir, MAX);
  const stored = filesIn(storeDir);
  shell('head -c 14000000 /dev/urandom > second');
  const isFull = (error: unknown) =>
    error instanceof DomainError && error.code === 'unavailable' && /leave 5 MiB/.test(error.message);
  const minFreeBytes = 5 * 1024 * 1024;
  for (const freeBytes of [[minFreeBytes - 1], [1e9, 1e9, 1e9, minFreeBytes + 1000]]) {
    let asked = 0;
    const nearlyFull = createSnapshotStore(volumeSwap, {
      minFreeBytes,
      freeBytes: async () => freeBytes[Math.min(asked++, freeBytes.length - 1)]!,
    });
    await assert.rejects(nearlyFull.save(storeDir, volumeDir, MAX), isFull);
    assert.equal(asked, freeBytes.length);
    assert.deepEqual(filesIn(storeDir), stored);
  }
  shell('rm first second');
  await store.restore(storeDir, volumeDir, before.chunks, room);
  assert.equal(shell('ls -l first').split(' ')[4], '9000000');
});

test('a disk that is full all the same is told as such, and nothing of the snapshot is left on it', async (t) => {
  const { storeDir, volumeDir, shell } = newWorld();
  shell('head -c 12000000 /dev/urandom > random');
  mkdirSync(storeDir);
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=6m', 'none', storeDir], { stdio: 'pipe' });
  } catch (error) {
    return t.skip(`nothing can be mounted here: ${String(error)}`);
  }
  try {
    // It says that there is room, as it was a moment ago.
    const unaware = createSnapshotStore(volumeSwap, { minFreeBytes: 0, freeBytes: async () => 1e12 });
    const told = { code: 'unavailable', message: /disk of the service is nearly full/ };
    await assert.rejects(unaware.save(storeDir, volumeDir, MAX), told);
    assert.deepEqual(filesIn(storeDir), []);
    await assert.rejects(store.save(storeDir, volumeDir, MAX), told);
    assert.deepEqual(filesIn(storeDir), []);
  } finally {
    execFileSync('umount', [storeDir]);
  }
});
