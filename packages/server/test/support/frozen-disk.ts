import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** Freezes, and thaws when the tests let go or are gone: nobody could take off a file system that stays frozen. */
const SCRIPT = 'fsfreeze --freeze "$1" && echo frozen && cat > /dev/null; fsfreeze --unfreeze "$1"';

/**
 * Whatever is about to change a file on the file system of a folder waits in the kernel from now on, until what is
 * returned is called. Only root may do so.
 */
export async function freezeDisk(folder: string): Promise<() => Promise<void>> {
  const child = spawn('sh', ['-c', SCRIPT, 'sh', folder], { stdio: ['pipe', 'pipe', 'inherit'] });
  const closed = once(child, 'close') as Promise<[number | null]>;
  const said = await Promise.race([once(child.stdout, 'data').then(String), closed]);
  assert.equal(said, 'frozen\n');
  return async () => {
    child.stdin.end();
    assert.deepEqual((await closed)[0], 0);
  };
}
