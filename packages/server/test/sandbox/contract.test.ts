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

const onlyByRoot = 'the contract holds, and transparent egress works, for a service without root rights';
/** Without cgroups nothing can be stopped all at once, and a limit of memory holds for each process, not for all of them. */
const ofCgroups = [
  'a frozen one stands still, goes on when thawed, and can be killed while frozen',
  'a program that runs out of memory is told from one that was killed',
];
/** What a service without root rights cannot do, all of it, by suite. */
const lackingWithoutRoot = {
  'sandbox contract: bubblewrap, service is no root': ofCgroups,
  'sandbox contract: bubblewrap, from the warm pool': ['sandbox contract: bubblewrap, from the warm pool'],
  'sandbox contract: bubblewrap without cgroups': ofCgroups,
  'sandbox contract: plain processes': [
    'inside the user is nobody special, at the places of the launch contract',
    'everything but the volume and the temporary folders is closed for writing',
    ofCgroups[0],
    'the limit of processes holds, as the capabilities say',
    'the limit of memory holds, as the capabilities say',
    ofCgroups[1],
    'Node starts and works within the limits, and sees nothing of the host',
    'no descriptor of the service is open inside',
    'a sandbox that closed its own folders starts again',
    'room on the disk cannot be set aside unwritten, and who knows posix_fallocate gets it written',
  ],
  [onlyByRoot]: [onlyByRoot],
};

interface Skip {
  /** The suite, or the test itself where it is in none. */
  suite: string;
  name: string;
  reason: string;
}

/** What was skipped, from the Test Anything Protocol as Node writes it, in its order. */
function skipsOf(tap: string): Skip[] {
  const skips: Skip[] = [];
  let suite = '';
  for (const line of tap.split('\n')) {
    suite = /^# Subtest: (.*)$/.exec(line)?.[1] ?? suite;
    const [, name, reason] = /^ *ok \d+ - (.*) # SKIP(.*)$/.exec(line) ?? [];
    if (name !== undefined) skips.push({ suite, name, reason: reason!.trim() });
  }
  return skips;
}

test(
  onlyByRoot,
  { skip: isRoot ? false : 'this process has no root rights itself, so the suite above was that test' },
  async (t) => {
    const flags = ['--test', '--test-isolation=none', '--test-reporter=tap'];
    const { code, stdout, output } = await runUnprivileged(
      ['contract.test.ts', 'transparent.test.ts'],
      flags,
    );
    assert.equal(code, 0, output);
    assert.match(stdout, /^# pass [1-9]/m);
    assert.match(stdout, /^ok \d+ - with transparent egress[^#]*$/m);
    const skips = skipsOf(stdout);
    for (const { suite, name, reason } of skips)
      t.diagnostic(`skipped without root: ${suite === name ? '' : `${suite}: `}${name}: ${reason}`);
    const told = Object.groupBy(skips, ({ suite }) => suite);
    const names = Object.entries(told).map(([suite, of]) => [suite, of!.map(({ name }) => name)]);
    assert.deepEqual(Object.fromEntries(names), lackingWithoutRoot);
  },
);
