import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { authorityVariables, isOwnVariable } from '../../src/domain/own-variables.ts';
import { harnessLaunch } from '../../src/harness/launch.ts';

const loopback = new URL('../../../harness/src/loopback.ts', import.meta.url).href;
/** In a process of its own, since the ports that it opens are open until its end. */
const script = `
  const { Loopback } = await import(${JSON.stringify(loopback)});
  const [socket, env] = JSON.parse(process.argv[1]);
  const settings = { token: 't', wire: 'anthropic', provider: 'anthropic' };
  console.log(JSON.stringify(await new Loopback(settings, socket, env).childEnv()));
  process.exit();`;

async function programSees(secrets: Record<string, string>): Promise<Record<string, string>> {
  const dir = mkdtempSync(join(tmpdir(), 'berth-own-'));
  try {
    writeFileSync(join(dir, 'egress.sock'), '');
    const { env } = harnessLaunch(
      { hostPath: '/harness', nodeDir: '/node' },
      {
        agentId: 'agent',
        commit: 'a'.repeat(40),
        model: 'anthropic/m',
        wire: 'anthropic',
        token: 't',
        command: ['program'],
        instructions: 'AGENTS.md',
        secrets,
        withheldSecrets: [],
        modelConnections: 10,
        memoryBytes: 256 * 1024 * 1024,
      },
    );
    const given = JSON.stringify([join(dir, 'gateway.sock'), { ...env, BERTH_EGRESS: 'proxy' }]);
    const args = ['--no-warnings', '--input-type=module', '-e', script, given];
    return JSON.parse((await promisify(execFile)(process.execPath, args)).stdout) as Record<string, string>;
  } finally {
    rmSync(dir, { recursive: true });
  }
}

test('the names that are refused for secrets are those that a program in a sandbox would not see', async () => {
  const own = Object.keys(await programSees({}));
  assert.ok(own.includes('HTTPS_PROXY') && own.includes('PATH'), own.join());
  const others = [
    'TOKEN',
    'NODE_OPTIONS',
    'LD_PRELOAD',
    'TERM',
    'PORT',
    'TZ',
    'LC_ALL',
    'DATABASE_URL',
    'Path',
  ];
  const names = [...own, ...others, ...authorityVariables];
  const seen = await programSees(Object.fromEntries(names.map((name) => [name, 'of the secret'])));
  for (const name of names) assert.equal(isOwnVariable(name), seen[name] !== 'of the secret', name);
});
