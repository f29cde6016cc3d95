import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { SandboxSpec } from '../../src/domain/ports/sandbox.ts';
import { markedProcesses } from '../../src/sandbox/processes.ts';
import { blankSpec, collect, fixture, lineOf, MIB, pidsOf, poolMissing, type Fixture } from './fixture.ts';
import { until } from '../support/until.ts';

const sh = (script: string): string[] => ['/bin/sh', '-c', script];

const noPool = await poolMissing();

describe('a sandbox that was made before its agent', { skip: noPool }, () => {
  let fx: Fixture;
  before(() => {
    fx = fixture();
  });
  after(() => fx.close());

  async function claimed(spec: SandboxSpec) {
    const sandbox = await (await fx.driver.prepare(blankSpec(spec))).claim(spec);
    assert.ok(sandbox);
    return sandbox;
  }

  const uidsOf = (pids: number[]): Set<number> => new Set(pids.map((pid) => statSync(`/proc/${pid}`).uid));

  test('runs under a host user that no other one has, and its files are those of its agent', async () => {
    const specs = [1, 2].map((slot) =>
      fx.spec(sh('umask 077; echo mine > f; echo up; exec sleep 100'), { slot }),
    );
    const sandboxes = await Promise.all(specs.map(claimed));
    for (const { stdout } of sandboxes) await lineOf(stdout, (line) => line === 'up');
    const uids = sandboxes.map((sandbox) => [...uidsOf(pidsOf(sandbox))]);
    assert.deepEqual(
      uids.map((own) => own.length),
      [1, 1],
    );
    assert.notEqual(uids[0]![0], uids[1]![0]);
    for (const { slot, volumeDir } of specs) {
      const file = statSync(join(volumeDir, 'workspace/f'));
      assert.deepEqual([file.uid, file.gid, file.mode & 0o777], [200_000 + slot, 200_000 + slot, 0o600]);
      assert.ok(!uids.flat().includes(200_000 + slot));
    }
    await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
  });

  test('keeps the files of its agent, and one that is started for it finds them as its own', async () => {
    await collect(await claimed(fx.spec(sh('echo one > a; mkdir -m 700 d; echo two > d/b'), { slot: 3 })));
    const { stdout } = await fx.run('cat a d/b; stat -c %u a; echo three >> a', { slot: 3 });
    assert.equal(stdout, 'one\ntwo\n1000\n');
    const again = await collect(await claimed(fx.spec(sh('cat a; stat -c %u a d'), { slot: 3 })));
    assert.equal(again.stdout, 'one\nthree\n1000\n1000\n');
  });

  test('holds nothing of any agent before it is claimed, and no mount of it is seen on the host', async () => {
    const spec = fx.spec(sh('exit 0'), { env: { TOKEN: 'only-at-the-claim' } });
    const blank = await fx.driver.prepare(blankSpec(spec));
    const pids = markedProcesses().filter(({ mark }) => mark.endsWith(blank.id));
    const inside = readdirSync('/proc').filter((name) => {
      try {
        return readFileSync(`/proc/${name}/status`, 'utf8').includes(`PPid:\t${pids.at(-1)!.pid}\n`);
      } catch {
        return false;
      }
    });
    const mounts = readFileSync(`/proc/${inside[0] ?? pids.at(-1)!.pid}/mountinfo`, 'utf8');
    assert.ok(!mounts.includes('/workspace'));
    const before = readFileSync('/proc/self/mountinfo', 'utf8');
    const sandbox = await blank.claim(spec);
    assert.equal(readFileSync('/proc/self/mountinfo', 'utf8').includes(spec.volumeDir), false);
    assert.equal(before.includes(spec.volumeDir), false);
    assert.equal((await sandbox!.exited).code, 0);
  });

  test('is claimed once, and never for what it was not made for', async () => {
    const spec = fx.spec(sh('exit 0'), { slot: 4 });
    const larger = { ...spec.limits, memoryBytes: 512 * MIB };
    for (const other of [
      { ...spec, limits: larger },
      { ...spec, transparentEgress: true },
      { ...spec, detached: true },
    ]) {
      const blank = await fx.driver.prepare(blankSpec(spec));
      assert.equal(await blank.claim(other), null);
      await blank.ended;
      assert.deepEqual(await fx.driver.list(), []);
      assert.equal(existsSync(spec.volumeDir), false);
    }
    const blank = await fx.driver.prepare(blankSpec(spec));
    const sandbox = await blank.claim(spec);
    assert.ok(sandbox);
    assert.equal(await blank.claim(spec), null);
    await sandbox.exited;
  });

  test('gives way to one that is started, where the volume is full', async () => {
    const spec = fx.spec(sh('exit 0'), { slot: 5 });
    mkdirSync(join(spec.volumeDir, 'workspace'), { recursive: true });
    writeFileSync(join(spec.volumeDir, 'workspace/large'), Buffer.alloc(65 * MIB));
    writeFileSync(join(spec.volumeDir, 'over-limit'), '');
    assert.equal(await (await fx.driver.prepare(blankSpec(spec))).claim(spec), null);
    assert.equal((await collect(await fx.driver.start(spec))).exit.code, 0);
  });

  test('is gone when it is discarded, and when its driver closes', async () => {
    const other = fixture();
    const one = await other.driver.prepare(blankSpec(other.spec(sh('exit 0'))));
    assert.deepEqual(await other.driver.list(), [one.id]);
    await one.discard();
    assert.deepEqual(await other.driver.list(), []);
    const two = await other.driver.prepare(blankSpec(other.spec(sh('exit 0'), { detached: true })));
    await other.driver.close();
    await two.ended;
    assert.deepEqual(await other.driver.list(), []);
    await other.close();
  });

  test('lives on when it was claimed, and the next driver takes it up with its host user', async () => {
    const script = 'echo up; while [ ! -e go ]; do sleep 0.05; done; echo done > result; exit 9';
    const spec = fx.spec(sh(script), { slot: 6, detached: true });
    const started = await claimed(spec);
    const next = fixture({ areaDir: fx.areaDir, name: fx.name });
    try {
      const adopted = await next.driver.adopt(started.id);
      assert.ok(adopted);
      await until('it is up', () => readFileSync(adopted.logFile!, 'utf8') === 'up\n');
      writeFileSync(join(spec.volumeDir, 'workspace/go'), '');
      assert.deepEqual(await adopted.exited, { reason: 'exit', code: 9, signal: null });
      assert.equal(statSync(join(spec.volumeDir, 'workspace/result')).uid, 200_006);
      await started.exited;
    } finally {
      await next.close();
    }
  });

  test('ends by itself after kill -9 of the service, and nothing is left once the next one has looked', async () => {
    const file = join(import.meta.dirname, 'blank-child.ts');
    const service = spawn(process.execPath, [file, fx.areaDir, fx.name], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let folder = '';
    try {
      const [made = '', id = ''] = (await lineOf(service.stdout, (line) => line !== '')).split(' ');
      folder = made;
      const alive = (): boolean => markedProcesses().some(({ mark }) => mark === `${fx.name}/${id}`);
      assert.ok(alive());
      service.kill('SIGKILL');
      await once(service, 'exit');
      await until('it has ended', () => !alive());
      assert.equal(await fx.driver.adopt(id), null);
      await fx.driver.remove(id);
      assert.deepEqual(await fx.driver.list(), []);
    } finally {
      service.kill('SIGKILL');
      // Whoever made it cannot remove it any more.
      if (folder !== '') rmSync(folder, { recursive: true, force: true });
    }
  });
});
