import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { readMounts } from '../../src/sandbox/cgroup/mounts.ts';
import { testDatabase } from '../support/database.ts';
import { addressOf } from '../support/database-address.ts';
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

test('the doctor finds a problem where the start refuses the driver: too weak, or plain processes without the word', async () => {
  for (const [env, why] of [
    [{ BERTH_MIN_ISOLATION: 'vm' }, /BERTH_MIN_ISOLATION asks for vm.* set BERTH_MIN_ISOLATION=kernel\.$/m],
    [
      { BERTH_SANDBOX: 'process' },
      /unless BERTH_UNSAFE_PROCESS_SANDBOX is 1 and BERTH_MIN_ISOLATION is none\.$/m,
    ],
    [
      { BERTH_SANDBOX: 'process', BERTH_UNSAFE_PROCESS_SANDBOX: '1' },
      /asks for kernel, .* set BERTH_MIN_ISOLATION=none\.$/m,
    ],
  ] as const) {
    const { code, told } = await doctor(newFolder(), newFolder(), env).ended;
    assert.equal(code, 1, told);
    assert.match(told, /^PROBLEM +sandbox: /m);
    assert.match(told, why);
  }
  const allowed = {
    BERTH_SANDBOX: 'process',
    BERTH_UNSAFE_PROCESS_SANDBOX: '1',
    BERTH_MIN_ISOLATION: 'none',
  };
  const { code, told } = await doctor(newFolder(), newFolder(), allowed).ended;
  assert.match(told, /^ok +sandbox: process works$/m);
  assert.equal(code, told.includes('PROBLEM') ? 1 : 0);
});

test('the doctor connects to a database of the operator, and says what fails without its password', async (t) => {
  const sockets: Socket[] = [];
  const silent = createServer((socket) => void sockets.push(socket.on('error', () => {}).resume()));
  await once(silent.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
  const { port } = silent.address() as AddressInfo;
  const closed = createServer();
  await once(closed.listen(0, '127.0.0.1'), 'listening');
  const { port: closedPort } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  for (const [place, why] of [
    [
      `127.0.0.1:${closedPort}`,
      /problem: The database cannot be used: .*ECONNREFUSED.* BERTH_DATABASE_URL\.$/m,
    ],
    [`127.0.0.1:${port}`, /problem: The database cannot be used: .*CONNECT_TIMEOUT.* BERTH_DATABASE_URL\.$/m],
  ] as const) {
    const env = { BERTH_DATABASE_URL: `postgres://berth:hush-hush@${place}/berth` };
    const { code, told, errors } = await doctor(newFolder(), newFolder(), env).ended;
    assert.equal(code, 1, told);
    assert.match(told, /^PROBLEM +database: /m);
    assert.match(told, why);
    assert.doesNotMatch(told + errors, /hush-hush/);
  }
});

test('the doctor says of a database that can be used that it can, and changes nothing in it', async (t) => {
  const { db, connection, close } = await testDatabase();
  t.after(close);
  const url = await addressOf(t, connection);
  const { told } = await doctor(newFolder(), newFolder(), { BERTH_DATABASE_URL: url }).ended;
  assert.match(told, /^ok +database: BERTH_DATABASE_URL is set, and its server can be used$/m);
  await db.sql`insert into schema_migrations (version, name, checksum) values (9999, 'later', 'x')`;
  const newer = await doctor(newFolder(), newFolder(), { BERTH_DATABASE_URL: url }).ended;
  assert.equal(newer.code, 1);
  assert.match(newer.told, /^PROBLEM +database: .*\n +problem: .*a newer Berth has used it/m);
});
