import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runAttacks, type Verdicts } from './attack-suite.ts';
import { checkColumn, numberedRows } from './attack-table.ts';
import { fixture, isRoot, pooledFixture, poolMissing } from './fixture.ts';
import { runUnprivileged } from './unprivileged.ts';

test('every attack from a bubblewrap sandbox is blocked or harmless, as the docs say', async () => {
  const fx = fixture();
  try {
    checkColumn(isRoot ? 'bubblewrap, root' : 'bubblewrap, no root', await runAttacks(fx, 'kernel'));
  } finally {
    await fx.close();
  }
});

test(
  'every attack from a sandbox of the warm pool ends as from one that was started for its agent',
  { skip: await poolMissing() },
  async () => {
    let claims = 0;
    const fx = pooledFixture({}, (isClaimed) => (claims += Number(isClaimed)));
    try {
      checkColumn('bubblewrap, root', await runAttacks(fx, 'kernel'));
      assert.ok(claims >= 10, `only ${claims} of the sandboxes were from the pool`);
    } finally {
      await fx.close();
    }
  },
);

test(
  'every attack is blocked or harmless for a service without root rights too',
  { skip: isRoot ? false : 'this process has no root rights itself, so the test above was that test' },
  async () => {
    const { code, stdout, output } = await runUnprivileged(['attack-child.ts'], []);
    assert.equal(code, 0, output);
    checkColumn('bubblewrap, no root', JSON.parse(stdout) as Verdicts);
  },
);

test('the docs say of every attack of the list, from 1 to 40, how it ends wherever it is tried', () => {
  const rows = numberedRows();
  assert.deepEqual(
    rows.map(({ number }) => number).sort((one, other) => one - other),
    Array.from({ length: 40 }, (_, index) => index + 1),
  );
  for (const { number, cells } of rows) {
    assert.ok(cells.length >= 2, `row ${number}`);
    for (const cell of cells) assert.match(cell, /^(blocked|reached|–)$/, `row ${number}`);
  }
});
