import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { cgroupNotes, explainFailure } from '../../src/sandbox/diagnose.ts';
import { describe as lines } from '../../src/sandbox/probe.ts';
import { fixture, isRoot, type Fixture } from './fixture.ts';

async function withFixture(
  options: Parameters<typeof fixture>[0],
  work: (fx: Fixture) => Promise<void>,
): Promise<void> {
  const fx = fixture(options);
  try {
    await work(fx);
  } finally {
    await fx.close();
  }
}

test('without bwrap the driver is unusable, names the package, and starts nothing in its place', async () => {
  await withFixture({ bwrapPath: '/no/such/bwrap' }, async (fx) => {
    const capabilities = await fx.driver.capabilities();
    assert.equal(capabilities.usable, false);
    assert.match(
      capabilities.problems.join('\n'),
      /\/no\/such\/bwrap is missing.*apt-get install -y bubblewrap/,
    );
    assert.match(lines(capabilities).join('\n'), /^sandbox: bubblewrap does not work\nproblem: /);
    await assert.rejects(fx.start('touch /workspace/ran'), /did not start/);
    assert.deepEqual(await fx.driver.list(), []);
  });
});

test('a bwrap that fails is reported with its own words', async () => {
  await withFixture({}, async (fx) => {
    const bwrapPath = join(fx.folder, 'failing');
    writeFileSync(bwrapPath, '#!/bin/sh\necho "setting up uid map: Permission denied" >&2\nexit 1\n');
    chmodSync(bwrapPath, 0o755);
    await withFixture({ bwrapPath }, async (failing) => {
      const { usable, problems } = await failing.driver.capabilities();
      assert.equal(usable, false);
      assert.match(problems[0] ?? '', /setting up uid map: Permission denied/);
    });
  });
});

test('without anything that sets limits nothing starts, since the limits would only be claimed', async () => {
  await withFixture({ prlimitPath: '/no/such/prlimit', perlPath: '/no/such/perl' }, async (fx) => {
    assert.match((await fx.driver.capabilities()).problems.join('\n'), /util-linux/);
    await assert.rejects(fx.start('true'), /did not start/);
    assert.deepEqual(await fx.driver.list(), []);
  });
});

test(
  'a volume below a closed folder fails with the path',
  { skip: isRoot ? false : 'sandboxes run under another user only as root' },
  async () => {
    await withFixture({}, async (fx) => {
      const closed = join(fx.folder, 'closed');
      mkdirSync(closed, { mode: 0o700 });
      const volumeDir = join(closed, 'volume');
      await fx.start('true', { volumeDir }).then(
        async (sandbox) => assert.notEqual((await sandbox.exited).code, 0),
        (error: Error) => assert.match(error.message, /closed\/volume\/workspace: Permission denied/),
      );
    });
  },
);

test('the grades without cgroups claim no more than rlimits do', async () => {
  await withFixture({ useCgroups: false }, async (fx) => {
    const { limits, accounting, notes } = await fx.driver.capabilities();
    assert.deepEqual(limits, {
      memory: 'per-process',
      cpu: 'none',
      pids: 'per-process',
      disk: 'watched',
      openFiles: 'per-process',
      output: 'watched',
    });
    assert.equal(accounting, false);
    assert.match(notes.join('\n'), /cgroup limits of memory, cpu, pids cannot be set.*640 MiB/s);
  });
});

test('notes name what is missing, with the remedy for the user of the service', () => {
  assert.deepEqual(cgroupNotes(['memory', 'cpu', 'pids'], true), []);
  assert.match(cgroupNotes(['memory', 'pids'], true).join(), /of cpu cannot be set.*writable/);
  assert.match(cgroupNotes(['memory', 'pids'], false).join(), /Delegate=yes/);
  assert.match(explainFailure('No permissions')[0] ?? '', /No permissions/);
});
