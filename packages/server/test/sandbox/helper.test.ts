import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { until } from '../support/until.ts';
import { Helper, hex, missingHelper, PERL } from '../../src/sandbox/helper.ts';

const skip = missingHelper(PERL) ?? false;
/** An order that is understood and cannot be done: there is no such folder. */
const ordered = (helper: Helper): Promise<string> => helper.ask('wait', [hex('/no/such/folder')]);

test('a helper that could not be started is started with the next order', { skip }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-helper-'));
  const perl = join(folder, 'perl');
  const helper = new Helper(perl);
  try {
    assert.equal(await ordered(helper), 'the helper ended');
    writeFileSync(perl, `#!/bin/sh\nexec ${PERL} "$@"\n`);
    chmodSync(perl, 0o755);
    assert.match(await ordered(helper), /No such file/);
  } finally {
    helper.close();
    rmSync(folder, { recursive: true });
  }
});

test('a helper that stands still is replaced, and one that was killed', { skip }, async () => {
  const helper = new Helper(PERL, 1_000);
  try {
    const still = helper.begin();
    still.kill('SIGSTOP');
    const [first, second] = await Promise.all([ordered(helper), ordered(helper)]);
    assert.deepEqual([first, second].sort(), ['no answer', 'the helper ended']);
    // A machine that is slow right now may take longer for one, too.
    const isAnswered = async () => /No such file/.test(await ordered(helper));
    await until('the next one answers', isAnswered);
    const killed = helper.begin();
    assert.notEqual(killed.pid, still.pid);
    killed.kill('SIGKILL');
    await new Promise((resolve) => killed.once('exit', resolve));
    await until('the one after it answers', isAnswered);
  } finally {
    helper.close();
  }
});
