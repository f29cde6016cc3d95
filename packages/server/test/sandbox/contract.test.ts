import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, chownSync, copyFileSync, cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { sandboxContract } from './contract-suite.ts';
import { ProcessDriver } from '../../src/sandbox/process/process-driver.ts';
import { silentLog } from '../support/log.ts';
import { driverFixture, fixture, isRoot } from './fixture.ts';

sandboxContract({
  label: isRoot ? 'bubblewrap, service is root' : 'bubblewrap, service is no root',
  isolation: 'kernel',
  make: fixture,
});
sandboxContract({
  label: 'bubblewrap without cgroups',
  isolation: 'kernel',
  make: (place) => fixture({ ...place, useCgroups: false }),
});
sandboxContract({
  label: 'plain processes',
  isolation: 'none',
  make: (place) => driverFixture((options) => new ProcessDriver({ ...options, log: silentLog }), place),
});

const UNPRIVILEGED = 61_234;
const server = join(import.meta.dirname, '../..');

test(
  'the contract holds, and transparent egress works, for a service without root rights',
  { skip: isRoot ? false : 'this process has no root rights itself, so the suite above was that test' },
  async () => {
    // A copy, since the checkout may lie where other users cannot read.
    const folder = mkdtempSync(join(tmpdir(), 'berth-unpriv-'));
    try {
      chmodSync(folder, 0o755);
      chownSync(folder, UNPRIVILEGED, UNPRIVILEGED);
      for (const part of ['src/domain', 'src/sandbox', 'test/sandbox', 'test/support']) {
        cpSync(join(server, part), join(folder, part), { recursive: true });
      }
      writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
      copyFileSync(process.execPath, join(folder, 'node'));
      chmodSync(join(folder, 'node'), 0o755);
      const files = ['contract', 'transparent'].map((name) => join(folder, `test/sandbox/${name}.test.ts`));
      const child = spawn(
        join(folder, 'node'),
        ['--test', '--test-isolation=none', '--test-reporter=tap', ...files],
        {
          uid: UNPRIVILEGED,
          gid: UNPRIVILEGED,
          cwd: folder,
          env: { TMPDIR: folder, PATH: '/usr/bin:/bin' },
          stdio: ['ignore', 'pipe', 'pipe'],
        },
      );
      let output = '';
      child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
      child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
      const [code] = (await once(child, 'close')) as [number];
      assert.equal(code, 0, output);
      assert.match(output, /^# pass [1-9]/m);
      assert.match(output, /^ok \d+ - with transparent egress[^#]*$/m);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
