import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Readable } from 'node:stream';
import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import { adoptedMonitor } from '../../src/sandbox/monitor.ts';
import { startTime } from '../../src/sandbox/processes.ts';
import { fixture, lineOf, type Fixture } from './fixture.ts';
import { until } from '../support/until.ts';

const detached = { detached: true };

function logOf(sandbox: RunningSandbox): string {
  return sandbox.logFile === null ? '' : readFileSync(sandbox.logFile, 'utf8');
}

describe('a detached sandbox', () => {
  let fx: Fixture;
  before(() => {
    fx = fixture();
  });
  after(() => fx.close());

  test('writes to its log file, has an empty input, and tells its exit code', async () => {
    const sandbox = await fx.start('cat; echo out; echo err >&2; sleep 0.3; exit 7', detached);
    await until('both outputs are in the log', () => logOf(sandbox) === 'out\nerr\n');
    assert.deepEqual(await sandbox.exited, { reason: 'exit', code: 7, signal: null });
    assert.ok(!(await fx.driver.list()).includes(sandbox.id));
  });

  test('is not ended by the close of its driver, and the next driver adopts it with its limits, counts and exit', async () => {
    const script =
      "perl -e '$t = times; while (times() - $t < 0.3) {}'; echo up; while [ ! -e go ]; do sleep 0.05; done; exit 9";
    const started = await fx.start(script, { ...detached, slot: 2 });
    await until('it is up', () => logOf(started).includes('up'));
    const next = fixture({ areaDir: fx.areaDir, name: fx.name });
    try {
      assert.ok((await next.driver.list()).includes(started.id));
      const adopted = await next.driver.adopt(started.id);
      assert.ok(adopted);
      assert.equal(await next.driver.adopt(started.id), adopted);
      assert.equal(logOf(adopted), 'up\n');
      assert.ok((await adopted.stats()).cpuMicros > 250_000);
      assert.ok((await adopted.stats()).pids >= 2);
      writeFileSync(join(fx.folder, 'volume-2/workspace/go'), '');
      assert.deepEqual(await adopted.exited, { reason: 'exit', code: 9, signal: null });
      await started.exited;
      assert.equal(await next.driver.adopt(started.id), null);
    } finally {
      await next.close();
    }
  });

  test('an adopted one can be killed, stopped and removed like any other', async () => {
    const next = fixture({ areaDir: fx.areaDir, name: fx.name });
    try {
      const [killed, stopped, removed] = await Promise.all(
        [4, 5, 6].map((slot) =>
          fx.start('trap "exit 3" TERM; echo up; while :; do sleep 0.05; done', { ...detached, slot }),
        ),
      );
      assert.ok(killed && stopped && removed);
      for (const one of [killed, stopped, removed]) await until('it is up', () => logOf(one) === 'up\n');
      const [a, b] = await Promise.all([next.driver.adopt(killed.id), next.driver.adopt(stopped.id)]);
      assert.equal((await a!.kill()).reason, 'killed');
      assert.deepEqual(await b!.stop(10_000), { reason: 'killed', code: 3, signal: null });
      await next.driver.remove(removed.id);
      for (const one of [killed, stopped, removed]) await one.exited;
      const left = await next.driver.list();
      for (const { id } of [killed, stopped, removed]) assert.ok(!left.includes(id));
    } finally {
      await next.close();
    }
  });

  test('one that is not detached, has ended or never was cannot be adopted', async () => {
    const next = fixture({ areaDir: fx.areaDir, name: fx.name });
    try {
      const attached = await fx.start('exec cat');
      assert.equal(await next.driver.adopt(attached.id), null);
      await attached.kill();
      assert.equal(await next.driver.adopt(attached.id), null);
      assert.equal(await next.driver.adopt('../../etc/passwd'), null);
    } finally {
      await next.close();
    }
  });

  test('a flooded log stays small and keeps what was written last', async () => {
    const flood = 'for (1 .. 200000) { print "line $_ of many that fill the log\\n" }';
    // What is written around a cut may be lost, so the last words come when there is none any more.
    const sandbox = await fx.start(
      `perl -e '${flood}'; : > flooded; while [ ! -e go ]; do sleep 0.05; done; seq 100; echo last; sleep 100`,
      { ...detached, slot: 7 },
    );
    const workspace = join(fx.folder, 'volume-7/workspace');
    await until('all was written', () => existsSync(join(workspace, 'flooded')));
    await until('the log was cut', () => statSync(sandbox.logFile!).size <= 1024 * 1024);
    writeFileSync(join(workspace, 'go'), '');
    await until('the last line is there', () => logOf(sandbox).endsWith('\n99\n100\nlast\n'));
    const kept = logOf(sandbox);
    assert.ok(kept.length <= 1024 * 1024 + 1000, `${kept.length} bytes`);
    assert.match(kept, /\nline \d+ of many that fill the log\n/);
    assert.doesNotMatch(kept, /^line 1 of many/);
    await sandbox.kill();
  });

  test('the log cannot be opened from inside by its path, nor through /proc where the service is root', async () => {
    // Without root the file belongs to the user that the sandbox runs as.
    const throughProc = 'head -c 1 /dev/zero > /proc/self/fd/1 2>/dev/null && echo opened;';
    const sandbox = await fx.start(
      `echo x > /run/berth/output.log; ${process.getuid?.() === 0 ? throughProc : ''} echo end; sleep 100`,
      detached,
    );
    await until('it has tried', () => logOf(sandbox).endsWith('end\n'));
    assert.match(logOf(sandbox), /Read-only file system/);
    assert.ok(!logOf(sandbox).includes('opened'));
    await sandbox.kill();
  });
});

test('kill -9 of the service leaves a detached sandbox running; the next one adopts it and knows its exit code', async () => {
  const fx = fixture();
  const args = [join(import.meta.dirname, 'service-child.ts'), fx.folder, fx.name, 'cgroups', 'detached'];
  const service = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const ids: string[] = [];
    await lineOf(service.stdout as Readable, (line) => {
      if (line.startsWith('{')) ids.push((JSON.parse(line) as { id: string }).id);
      return line === 'ready';
    });
    service.kill('SIGKILL');
    await once(service, 'exit');
    assert.deepEqual((await fx.driver.list()).sort(), ids.toSorted());
    const sandboxes = await Promise.all(ids.map((id) => fx.driver.adopt(id)));
    writeFileSync(join(fx.folder, 'volume-1/workspace/go'), '');
    assert.deepEqual(await sandboxes[0]!.exited, { reason: 'exit', code: 5, signal: null });
    assert.equal((await sandboxes[1]!.kill()).reason, 'killed');
    assert.equal((await sandboxes[2]!.stop(5000)).reason, 'killed');
    assert.deepEqual(await fx.driver.list(), []);
    assert.ok(!existsSync(join(fx.areaDir, 'detached', `${ids[0]}.json`)));
  } finally {
    service.kill('SIGKILL');
    await fx.close();
    for (const slot of [1, 2, 3]) await fx.driver.removeVolume(join(fx.folder, `volume-${slot}`));
  }
});

test('the exit code of an adopted one is waited for as long as its monitor takes to tell it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-monitor-'));
  const file = join(folder, 'code');
  try {
    const { pid = 0 } = spawn('/bin/sh', ['-c', `sleep 0.5; echo 7 > ${file}`], { stdio: 'ignore' });
    const monitor = { pid, since: startTime(pid)! };
    const init = { pid, since: 'an init that has ended' };
    const exitCode = () => (existsSync(file) ? Number(readFileSync(file, 'utf8')) : null);
    assert.deepEqual(await adoptedMonitor(init, monitor, exitCode).ended, { code: 7, signal: null });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
