import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { until } from '../support/until.ts';
import { isRunning, startTime } from '../../src/sandbox/processes.ts';
import { Helper, hex, missingHelper, PERL } from '../../src/sandbox/helper.ts';

const skip = missingHelper(PERL) ?? false;
/** An order that is understood and cannot be done: there is no such folder, and only root may map users. */
const ordered = (helper: Helper): Promise<string> =>
  helper.ask('mount', [0, 0, 0, 0, hex('/no/such/folder')]);
const whyNot = /^(open_tree|uid_map|unshare)/;

test('a helper that could not be started is started with the next order', { skip }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-helper-'));
  const perl = join(folder, 'perl');
  const helper = new Helper(perl, 'test');
  try {
    assert.equal(await ordered(helper), 'the helper ended');
    writeFileSync(perl, `#!/bin/sh\nexec ${PERL} "$@"\n`);
    chmodSync(perl, 0o755);
    assert.match(await ordered(helper), whyNot);
  } finally {
    helper.close();
    rmSync(folder, { recursive: true });
  }
});

test('a helper that stands still is replaced, and one that was killed', { skip }, async () => {
  const helper = new Helper(PERL, 'test', 1_000);
  try {
    const still = helper.begin();
    still.kill('SIGSTOP');
    const [first, second] = await Promise.all([ordered(helper), ordered(helper)]);
    assert.deepEqual([first, second].sort(), ['no answer', 'the helper ended']);
    // A machine that is slow right now may take longer for one, too.
    const isAnswered = async () => whyNot.test(await ordered(helper));
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

test('a helper ends with its service, also one that stands still', { skip }, async () => {
  const file = JSON.stringify(new URL('../../src/sandbox/helper.ts', import.meta.url).href);
  const program = `import { Helper, hex } from ${file};
    const helper = new Helper(${JSON.stringify(PERL)}, 'test');
    const { pid } = helper.begin();
    await helper.ask('mount', [0, 0, 0, 0, hex('/no/such/folder')]);
    console.log(pid);
    setInterval(() => {}, 60_000);`;
  const service = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let pid = 0;
  try {
    const [told] = (await once(service.stdout, 'data')) as [Buffer];
    pid = Number(told.toString());
    const since = startTime(pid)!;
    process.kill(pid, 'SIGSTOP');
    service.kill('SIGKILL');
    await until('it has ended', () => !isRunning(pid, since));
    pid = 0;
  } finally {
    service.kill('SIGKILL');
    if (pid > 0) process.kill(pid, 'SIGKILL');
  }
});
