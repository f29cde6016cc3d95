import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';

const bin = fileURLToPath(new URL('../bin/berth.mjs', import.meta.url));

/** The command line against a service, without the settings of whoever runs the test. `ended`: its exit code and standard error. */
export function runBerth(
  context: TestContext,
  url: string,
  words: string[],
  stdout: 'ignore' | 'pipe' = 'ignore',
) {
  const child = spawn(process.execPath, [bin, ...words], {
    env: { PATH: process.env['PATH'], HOME: '/nonexistent', BERTH_URL: url, BERTH_API_KEY: 'key' },
    stdio: ['pipe', stdout, 'pipe'],
  });
  context.after(() => child.kill('SIGKILL'));
  let told = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => (told += text));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, told }));
  return { child, ended };
}
