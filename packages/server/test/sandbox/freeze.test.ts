import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fixture, lineOf, local, type Fixture } from './fixture.ts';
import { until } from '../support/until.ts';

describe('a sandbox can be frozen and stopped', () => {
  let fx: Fixture;
  let canFreeze: boolean;
  before(async () => {
    fx = fixture();
    canFreeze = (await fx.driver.capabilities()).freeze;
  });
  after(() => fx.close());
  const needsFreezer = (t: { skip(why: string): void }): boolean => {
    if (!canFreeze) t.skip('no cgroup of this host freezes');
    return canFreeze;
  };

  test('frozen it uses no CPU and writes nothing; thawed it goes on where it was', async (t) => {
    if (!needsFreezer(t)) return;
    const sandbox = await fx.start('i=0; while :; do i=$((i+1)); echo $i > count; done');
    const count = join(fx.folder, 'volume-1/workspace/count');
    await until('it counts', () => (statSync(count, { throwIfNoEntry: false })?.size ?? 0) > 0);
    assert.equal(sandbox.isFrozen, false);
    await sandbox.freeze();
    await sandbox.freeze();
    assert.equal(sandbox.isFrozen, true);
    const [before, stats] = [readFileSync(count, 'utf8'), await sandbox.stats()];
    await until(
      'time passes',
      async () => (await sandbox.stats()).memoryByteSeconds > stats.memoryByteSeconds,
    );
    assert.equal(readFileSync(count, 'utf8'), before);
    assert.equal((await sandbox.stats()).cpuMicros, stats.cpuMicros);
    await sandbox.thaw();
    await sandbox.thaw();
    assert.equal(sandbox.isFrozen, false);
    await until('it counts on', () => readFileSync(count, 'utf8') !== before);
    await sandbox.kill();
  });

  test('a frozen one can be killed, removed, and stopped with a last word', async (t) => {
    if (!needsFreezer(t)) return;
    const script = 'trap "exit 4" TERM; echo up; while :; do sleep 0.05; done';
    const sandboxes = await Promise.all([1, 2, 3].map((slot) => fx.start(script, { slot })));
    for (const one of sandboxes) {
      await lineOf(one.stdout, (line) => line === 'up');
      await one.freeze();
    }
    assert.equal((await sandboxes[0]!.kill()).reason, 'killed');
    await fx.driver.remove(sandboxes[1]!.id);
    assert.deepEqual(await sandboxes[2]!.stop(10_000), { reason: 'killed', code: 4, signal: null });
    await assert.rejects(sandboxes[0]!.freeze(), /ended/);
    assert.equal(sandboxes[0]!.isFrozen, false);
  });

  test('the next service sees that one is frozen, and thaws it', async (t) => {
    if (!needsFreezer(t)) return;
    const sandbox = await fx.start('echo up; while :; do sleep 0.05; done', { detached: true });
    await until('it is up', () => readFileSync(sandbox.logFile!, 'utf8') === 'up\n');
    await sandbox.freeze();
    const next = fixture({ areaDir: fx.areaDir, name: fx.name });
    try {
      const adopted = await next.driver.adopt(sandbox.id);
      assert.equal(adopted?.isFrozen, true);
      await adopted.thaw();
      assert.equal(sandbox.isFrozen, false);
      await adopted.kill();
    } finally {
      await next.close();
    }
  });

  test('stop ends what ignores the signal after the time that was given', async () => {
    const sandbox = await fx.start('trap "" TERM; echo up; while :; do sleep 0.05; done');
    await lineOf(sandbox.stdout, (line) => line === 'up');
    assert.equal((await sandbox.stop(100)).reason, 'killed');
    assert.equal((await sandbox.stop(100)).reason, 'killed');
  });
});

test('where no cgroup can be used, freezing is a declared lack and refused', async () => {
  const fx = fixture({ useCgroups: false });
  try {
    assert.equal((await fx.driver.capabilities()).freeze, false);
    const sandbox = await fx.start('exec cat');
    await assert.rejects(sandbox.freeze(), /cannot be frozen/);
    assert.equal(sandbox.isFrozen, false);
    await sandbox.kill();
  } finally {
    await fx.close();
  }
});

test('one that is held to be looked at goes on afterwards, unless it was to be frozen', async (t) => {
  const fx = fixture();
  try {
    if (!(await fx.driver.capabilities()).freeze) {
      t.skip('no cgroup of this host freezes');
      return;
    }
    const sandbox = local(await fx.start('while read line; do echo "$line"; done'));
    const answers = async (word: string): Promise<void> => {
      sandbox.stdin.write(`${word}\n`);
      await lineOf(sandbox.stdout, (line) => line === word);
    };
    await answers('one');
    await sandbox.hold();
    assert.equal(sandbox.isFrozen, false);
    sandbox.release();
    await answers('two');
    await sandbox.hold();
    await sandbox.freeze();
    sandbox.release();
    assert.equal(sandbox.isFrozen, true);
    await sandbox.hold();
    await sandbox.thaw();
    sandbox.release();
    await answers('three');
    await sandbox.hold();
    assert.equal((await sandbox.kill()).reason, 'killed');
  } finally {
    await fx.close();
  }
});
