import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { readMounts } from '../../src/sandbox/cgroup/mounts.ts';
import { compileCache } from '../support/service.ts';
import { until } from '../support/until.ts';

const mainFile = fileURLToPath(new URL('../../src/main.mjs', import.meta.url));
const made: string[] = [];
after(() => {
  for (const folder of made) rmSync(folder, { recursive: true, force: true });
});

function newFolder(parent = '/tmp'): string {
  const folder = mkdtempSync(join(parent, 'berth-dr-'));
  // Users of sandboxes pass through.
  chmodSync(folder, 0o711);
  made.push(folder);
  return folder;
}

/** Stands in `cwd`, as somebody does who has set nothing. */
function doctor(cwd: string, temporary: string, env: Record<string, string> = {}) {
  // Compiled code is kept elsewhere, as it is for every command.
  const cache = { NODE_COMPILE_CACHE: newFolder(), ...compileCache() };
  const child = spawn(process.execPath, [mainFile, 'doctor'], {
    cwd,
    env: { PATH: process.env['PATH'], TMPDIR: temporary, ...cache, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [told, errors] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (told += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, told, errors }));
  return { child, ended };
}

/** What the installation with this data directory has on the host outside of it. */
function leftOnHost(dataDir: string): string[] {
  const name = `berth-${createHash('sha256').update(dataDir).digest('hex').slice(0, 12)}`;
  const groups = readMounts().mounts.map(({ mountPoint }) => join(mountPoint, name));
  return [...groups, join('/var/lib', name), join('/tmp', name)].filter((path) => existsSync(path));
}

const everything = (folder: string): string[] =>
  (readdirSync(folder, { recursive: true }) as string[]).toSorted();

const memory = '/dev/shm';
const isElsewhere = existsSync(memory) && statSync(memory).dev !== statSync('/tmp').dev;

for (const [where, parent] of [
  ['on the disk of temporary files', '/tmp'],
  ...(isElsewhere ? [['on another disk', memory] as const] : []),
] as const) {
  test(`the doctor leaves nothing where no service was ever started, and says so (${where})`, async () => {
    const [cwd, temporary] = [newFolder(parent), newFolder()];
    const { code, told } = await doctor(cwd, temporary).ended;
    const dataDir = join(cwd, 'data');
    assert.match(told, /^(ok|PROBLEM) +sandbox: bubblewrap/m);
    assert.match(told, new RegExp(`MiB free for ${dataDir}\\b.*\\n +this data directory is not there`));
    assert.deepEqual([everything(cwd), everything(temporary), leftOnHost(dataDir)], [[], [], []]);
    assert.equal(code, told.includes('PROBLEM') ? 1 : 0);
  });
}

test('the doctor leaves nothing for a data directory in a folder that is closed for others', async () => {
  const [cwd, temporary] = [newFolder(), newFolder()];
  chmodSync(cwd, 0o700);
  await doctor(cwd, temporary).ended;
  assert.deepEqual([everything(cwd), everything(temporary), leftOnHost(join(cwd, 'data'))], [[], [], []]);
});

test('the doctor leaves a data directory that is there as it was, and names it', async () => {
  const [cwd, temporary] = [newFolder(), newFolder()];
  const dataDir = join(cwd, 'kept');
  mkdirSync(join(dataDir, 'volumes'), { recursive: true, mode: 0o711 });
  const { told } = await doctor(cwd, temporary, { BERTH_DATA_DIR: dataDir }).ended;
  assert.match(told, new RegExp(`MiB free at ${dataDir}$`, 'm'));
  assert.doesNotMatch(told, /is not there/);
  assert.deepEqual(everything(cwd), ['kept', 'kept/volumes']);
  assert.deepEqual([everything(temporary), leftOnHost(dataDir)], [[], []]);
});

test('a doctor that is interrupted takes away what it has made so far', async () => {
  const [cwd, temporary] = [newFolder(), newFolder()];
  const { child, ended } = doctor(cwd, temporary);
  const tries = () => readdirSync(temporary).some((name) => existsSync(join(temporary, name, 'runtime')));
  await until('it tries something', tries);
  // Once by the terminal, and once by `berth`.
  child.kill('SIGINT');
  child.kill('SIGINT');
  const { code, told, errors } = await ended;
  assert.deepEqual([code, told, errors], [1, '', 'berth: The doctor was interrupted.\n']);
  assert.deepEqual([everything(cwd), everything(temporary), leftOnHost(join(cwd, 'data'))], [[], [], []]);
});
