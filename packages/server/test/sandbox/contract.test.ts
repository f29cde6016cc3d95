import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sandboxContract } from './contract-suite.ts';
import { ProcessDriver } from '../../src/sandbox/process/process-driver.ts';
import { silentLog } from '../support/log.ts';
import { driverFixture, fixture, isRoot, pooledFixture } from './fixture.ts';
import { runUnprivileged } from './unprivileged.ts';

sandboxContract({
  label: isRoot ? 'bubblewrap, service is root' : 'bubblewrap, service is no root',
  isolation: 'kernel',
  make: fixture,
});
sandboxContract({
  label: 'bubblewrap, from the warm pool',
  isolation: 'kernel',
  make: pooledFixture,
  skip: isRoot ? false : 'only root has a warm pool',
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

test(
  'the contract holds, and transparent egress works, for a service without root rights',
  { skip: isRoot ? false : 'this process has no root rights itself, so the suite above was that test' },
  async () => {
    const flags = ['--test', '--test-isolation=none', '--test-reporter=tap'];
    const { code, output } = await runUnprivileged(['contract.test.ts', 'transparent.test.ts'], flags);
    assert.equal(code, 0, output);
    assert.match(output, /^# pass [1-9]/m);
    assert.match(output, /^ok \d+ - with transparent egress[^#]*$/m);
  },
);
