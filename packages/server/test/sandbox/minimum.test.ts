import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isolationGrades, type Isolation } from '../../src/domain/ports/sandbox.ts';
import { isolationProblem, type IsolationPolicy } from '../../src/sandbox/minimum.ts';

const policy: IsolationPolicy = { minimum: 'kernel', allowsProcesses: false, organisations: 1 };
const driver = (name: string, isolation: Isolation) => ({ name, isolation: async () => isolation });

test('a driver is taken when it isolates as much as was asked or more, and refused when it isolates less', async () => {
  for (const [has, given] of isolationGrades.entries()) {
    for (const [wants, minimum] of isolationGrades.entries()) {
      const problem = await isolationProblem(driver('docker', given), { ...policy, minimum });
      assert.equal(problem === null, has >= wants, `${given} for ${minimum}`);
      if (problem !== null)
        assert.match(problem, new RegExp(`^BERTH_MIN_ISOLATION asks for ${minimum}.* ${given} here`));
    }
  }
});

test('a driver that cannot prove its isolation is refused whatever the minimum is', async () => {
  const broken = { name: 'docker', isolation: () => Promise.reject(new Error('no such socket')) };
  for (const minimum of isolationGrades)
    assert.match(
      (await isolationProblem(broken, { ...policy, minimum })) ?? '',
      /not usable.*no such socket/,
    );
});

test('plain processes need the explicit word, a minimum of none, and one organisation alone', async () => {
  const process = driver('process', 'none');
  const open: IsolationPolicy = { minimum: 'none', allowsProcesses: true, organisations: 1 };
  assert.equal(await isolationProblem(process, open), null);
  assert.match(
    (await isolationProblem(process, { ...open, allowsProcesses: false })) ?? '',
    /BERTH_UNSAFE_PROCESS_SANDBOX/,
  );
  assert.match(
    (await isolationProblem(process, { ...open, minimum: 'kernel' })) ?? '',
    /^BERTH_MIN_ISOLATION/,
  );
  assert.match((await isolationProblem(process, { ...open, organisations: 2 })) ?? '', /2 organisations/);
});
