import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';

const isRoot = process.getuid?.() === 0;
const module = new URL('../../src/sandbox/transparent.ts', import.meta.url).href;
const script = `
  import { readFileSync } from 'node:fs';
  import { openEveryAddress } from ${JSON.stringify(module)};
  const state = () => readFileSync('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'utf8') + readFileSync('/proc/net/fib_trie', 'utf8');
  const before = state();
  const told = await openEveryAddress(process.pid, true).then(() => 'opened', (error) => error.message);
  console.log(told + '; ' + (state() === before ? 'as before' : 'changed'));`;

test(
  'a process that is in no sandbox, as when a number is given to another one, has its network left as it is',
  { skip: isRoot ? false : 'only root enters by the number of a process alone' },
  () => {
    // In a network of its own, which counts as the host's here: the real one must bear even a failure of this test.
    const told = execFileSync('unshare', ['-n', process.execPath, '--input-type=module', '-e', script], {
      encoding: 'utf8',
    });
    assert.equal(
      told.trim(),
      'Transparent egress could not be set up: the process is not in a sandbox; as before',
    );
  },
);
