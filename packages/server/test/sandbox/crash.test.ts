import assert from 'node:assert/strict';
import { spawn, type SpawnOptions } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { test } from 'node:test';
import { markedProcesses } from '../../src/sandbox/processes.ts';
import { until } from '../support/until.ts';
import { fixture, isRoot, lineOf, local, type Fixture } from './fixture.ts';

interface Told {
  id: string;
  pids: number[];
  /** Descriptors to /dev/null that the sandbox's processes have. */
  leaked: string;
}

for (const useCgroups of isRoot ? [true, false] : [false]) {
  test(`kill -9 of the service leaves nothing once the next one has removed it (cgroups: ${useCgroups})`, async () => {
    const fx = fixture({ useCgroups });
    // The service inherits a descriptor without close-on-exec, as some shells and supervisors hand down.
    const inherited = openSync('/dev/null', 'r');
    const args = [
      join(import.meta.dirname, 'service-child.ts'),
      fx.folder,
      fx.name,
      useCgroups ? 'cgroups' : 'none',
    ];
    // Node closes low ones on exec by itself when it starts.
    const ignored = Array.from({ length: 40 }, () => 'ignore' as const);
    const stdio = ['ignore', 'pipe', 'inherit', ...ignored, inherited];
    const service = spawn(process.execPath, args, { stdio } as SpawnOptions);
    closeSync(inherited);
    try {
      const told: Told[] = [];
      await lineOf(service.stdout as Readable, (line) => {
        if (line.startsWith('{')) told.push(JSON.parse(line) as Told);
        return line === 'ready';
      });
      const pids = told.flatMap((one) => one.pids);
      assert.ok(pids.length >= 9);
      assert.deepEqual(
        told.map(({ leaked }) => leaked),
        ['0', '0', '0'],
        'a descriptor of the service leaked',
      );
      service.kill('SIGKILL');
      await once(service, 'exit');
      const left = await fx.driver.list();
      assert.ok(left.every((id) => told.some((one) => one.id === id)));
      await Promise.all(told.map(({ id }) => fx.driver.remove(id)));
      assert.deepEqual(await fx.driver.list(), []);
      assert.deepEqual(pids.filter(isRunning), []);
      assert.deepEqual(
        markedProcesses().filter(({ mark }) => mark.startsWith(`${fx.name}/`)),
        [],
      );
    } finally {
      service.kill('SIGKILL');
      for (const slot of [1, 2, 3]) await fx.driver.removeVolume(join(fx.folder, `volume-${slot}`));
      await fx.close();
    }
  });
}

test('kill -9 of the service while it sets the limits of a sandbox keeps its program from ever running', async () => {
  const fx = fixture();
  // As the user of the sandbox; ends when nobody reads any more what it says.
  const limiting = join(fx.folder, 'limiting');
  const prlimit = `#!/bin/sh\necho > ${limiting}/begun\nwhile echo waiting >&2; do sleep 0.05; done\n`;
  writeFileSync(join(fx.folder, 'prlimit'), prlimit, { mode: 0o755 });
  mkdirSync(limiting);
  chmodSync(limiting, 0o777);
  const args = [join(import.meta.dirname, 'service-child.ts'), fx.folder, fx.name, 'cgroups', 'limiting'];
  const service = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  try {
    await until('limits are being set', () => existsSync(join(limiting, 'begun')));
    service.kill('SIGKILL');
    await once(service, 'exit');
    await neverRan(fx);
  } finally {
    service.kill('SIGKILL');
    await fx.driver.removeVolume(join(fx.folder, 'volume-1'));
    await fx.close();
  }
});

test('kill -9 of the service right before it lets a program go, that its helper has launched, keeps it from ever running', async () => {
  const fx = fixture();
  const args = [join(import.meta.dirname, 'service-child.ts'), fx.folder, fx.name, 'cgroups', 'recording'];
  const service = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  try {
    await once(service, 'exit');
    assert.equal(service.signalCode, 'SIGKILL');
    await neverRan(fx);
  } finally {
    service.kill('SIGKILL');
    await fx.driver.removeVolume(join(fx.folder, 'volume-1'));
    await fx.close();
  }
});

/** The one sandbox that is left of a service waits for its word, and goes when the next service removes it. */
async function neverRan(fx: Fixture): Promise<void> {
  const left = await fx.driver.list();
  assert.equal(left.length, 1);
  // Each takes longer than a program that may run needs to begin.
  for (let starts = 0; starts < 3; starts += 1) await fx.run('true', { slot: 2 });
  assert.ok(!existsSync(join(fx.folder, 'volume-1/workspace/ran')), 'it ran, and nobody had let it go');
  assert.equal(await fx.driver.adopt(left[0]!), null);
  await fx.driver.remove(left[0]!);
  assert.deepEqual(await fx.driver.list(), []);
}

test('a sandbox of another installation on the same host is not listed and not removed', async () => {
  const [mine, theirs] = [fixture(), fixture()];
  try {
    const sandbox = await theirs.start('echo up; exec cat');
    await lineOf(sandbox.stdout, (line) => line === 'up');
    assert.deepEqual(await mine.driver.list(), []);
    await mine.driver.remove(sandbox.id);
    sandbox.stdin.write('still here\n');
    await lineOf(sandbox.stdout, (line) => line === 'still here');
  } finally {
    await Promise.all([mine.close(), theirs.close()]);
  }
});

function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

test('a sandbox that could not be ended at once can be removed later, and is not on the host any more', async () => {
  const fx = fixture();
  try {
    const sandbox = local(await fx.start('exec sleep 60'));
    const [pid] = sandbox.pids();
    // As when a process hangs in the kernel for longer than anybody waits.
    Object.assign(sandbox, {
      tree: new Proxy(sandbox['tree'], {
        get: (tree, name) =>
          name === 'destroy'
            ? () => Promise.reject(new Error('It does not end.'))
            : (Reflect.get(tree, name, tree) as unknown),
      }),
    });
    await assert.rejects(sandbox.kill(), /does not end/);
    assert.deepEqual(await fx.driver.list(), [sandbox.id], 'it is still told of');
    await fx.driver.remove(sandbox.id);
    assert.deepEqual(await fx.driver.list(), []);
    assert.ok(!isRunning(pid!));
  } finally {
    await fx.close();
  }
});
