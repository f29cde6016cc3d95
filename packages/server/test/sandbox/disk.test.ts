import assert from 'node:assert/strict';
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { deletedBytes, measure } from '../../src/sandbox/disk/measure.ts';
import { quotaFor } from '../../src/sandbox/disk/quota.ts';
import { collect, fixture, MIB, type Fixture } from './fixture.ts';

const diskBytes = 32 * MIB;
const limits = { memoryBytes: 256 * MIB, cpus: 1, pids: 64, diskBytes, openFiles: 256 };
/** What may be written between two looks at a file system that takes everything at the speed of memory. */
const OVERSHOOT_BYTES = 600 * MIB;

describe('a full disk stays the matter of the agent that filled it', () => {
  let fx: Fixture;
  before(() => {
    fx = fixture();
  });
  after(() => fx.close());
  const volume = (slot: number): string => join(fx.folder, `volume-${slot}`);
  const used = (slot: number): Promise<number> =>
    measure([join(volume(slot), 'workspace'), join(volume(slot), 'home')], 'bytes');

  test('one file cannot be larger than the whole limit', async () => {
    const { stdout, exit } = await fx.run(
      'head -c 100M /dev/zero > /tmp/../workspace/big; ls -s --block-size=1M big | cut -d" " -f1',
      { limits, slot: 3 },
    );
    assert.equal(stdout, '32\n');
    assert.equal(exit.reason, 'exit');
  });

  test('a sandbox that writes file after file is ended, and the next one can delete and work again', async () => {
    // Twice the limit and no more, however late it is seen: four times as large it could not write the note.
    const fill = 'for i in 0 1 2 3 4 5 6 7; do head -c 8M /dev/zero > f$i; sleep 0.01; done; sleep 100';
    const { exit } = await fx.run(fill, { limits, slot: 4 });
    assert.equal(exit.reason, 'disk_full');
    assert.ok((await used(4)) > diskBytes);

    const small = await fx.run(
      'echo note > note && head -c 60M /dev/zero > huge; stat -c %s huge; rm -f huge f*; ls',
      { limits, slot: 4 },
    );
    assert.equal(small.exit.reason, 'exit');
    const [size, ...left] = small.stdout.trim().split('\n');
    assert.ok(Number(size) <= 8 * MIB, `${size} bytes were written to an over-full volume`);
    assert.deepEqual(left, ['note']);

    const again = await fx.run('head -c 20M /dev/zero > fits && stat -c %s fits', { limits, slot: 4 });
    assert.equal(again.stdout, `${20 * MIB}\n`);
    assert.ok(!existsSync(join(volume(4), 'over-limit')));
  });

  test('an over-full volume that goes on growing is ended again', async () => {
    const fill = 'i=0; while :; do head -c 4M /dev/zero > $(mktemp -u ./XXXXXXXX); done';
    assert.equal((await fx.run(fill, { limits, slot: 5 })).exit.reason, 'disk_full');
    const before = await used(5);
    assert.equal((await fx.run(fill, { limits, slot: 5 })).exit.reason, 'disk_full');
    assert.ok((await used(5)) - before < OVERSHOOT_BYTES);
  });

  test('files that were deleted while open count', async () => {
    const program =
      'for (1 .. 40) { open($f[$_], ">", "x"); unlink "x"; syswrite($f[$_], "a" x 8000000); select(undef, undef, undef, 0.02) } sleep 100';
    const sandbox = await fx.driver.start(fx.spec(['/usr/bin/perl', '-e', program], { limits, slot: 6 }));
    assert.equal((await collect(sandbox)).exit.reason, 'disk_full');
  });

  test('very many small files count', async () => {
    const program =
      'for my $d (1 .. 200) { mkdir $d; for (1 .. 1000) { open(F, ">", "$d/$_"); close F } } sleep 100';
    const sandbox = await fx.driver.start(fx.spec(['/usr/bin/perl', '-e', program], { limits, slot: 7 }));
    assert.equal((await collect(sandbox)).exit.reason, 'disk_full');
  });
});

describe('measuring a volume', () => {
  let fx: Fixture;
  before(() => {
    fx = fixture();
  });
  after(() => fx.close());

  test('follows no link and counts a file with two names once', async () => {
    const outside = join(fx.folder, 'outside');
    const inside = join(fx.folder, 'inside');
    mkdirSync(outside);
    mkdirSync(inside);
    writeFileSync(join(outside, 'big'), Buffer.alloc(4 * MIB, 1));
    writeFileSync(join(inside, 'own'), Buffer.alloc(MIB, 1));
    symlinkSync(outside, join(inside, 'folder'));
    symlinkSync(join(outside, 'big'), join(inside, 'file'));
    const bytes = await measure([inside], 'bytes');
    assert.ok(bytes >= MIB && bytes < 2 * MIB, `${bytes}`);
    assert.equal(await measure([inside], 'entries'), 4);
  });

  test('sees what an agent hid in a folder that it closed', async () => {
    await fx.run('mkdir hidden && head -c 10M /dev/zero > hidden/x && chmod 000 hidden', { slot: 3 });
    const bytes = await measure([join(fx.folder, 'volume-3/workspace')], 'bytes');
    assert.ok(bytes >= 10 * MIB, `${bytes}`);
  });

  test('a process that is gone has no deleted files', async () => {
    assert.equal(await deletedBytes([2 ** 22 + 1], fx.folder), 0);
  });

  test('an over-full volume may grow by a little, a fuller one by less, and one four times as large by nothing', async () => {
    const limit = 8 * MIB;
    const dir = join(fx.folder, 'quota');
    mkdirSync(join(dir, 'home'), { recursive: true });
    mkdirSync(join(dir, 'workspace'));
    assert.equal((await quotaFor(dir, limit)).fileBytes, limit);
    writeFileSync(join(dir, 'over-limit'), '');
    writeFileSync(join(dir, 'workspace/a'), Buffer.alloc(9 * MIB, 1));
    const little = await quotaFor(dir, limit);
    assert.equal(little.fileBytes, limit / 4);
    assert.ok(little.bytes > 11 * MIB && little.bytes < 13 * MIB);
    writeFileSync(join(dir, 'workspace/b'), Buffer.alloc(9 * MIB, 1));
    assert.equal((await quotaFor(dir, limit)).fileBytes, MIB);
    writeFileSync(join(dir, 'workspace/c'), Buffer.alloc(16 * MIB, 1));
    assert.equal((await quotaFor(dir, limit)).fileBytes, 0);
  });
});
