import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { hostCommands } from '../../../cli/src/host.ts';
import { readConfig } from '../../src/config.ts';
import { clusterMajor } from '../../src/store/embedded/cluster.ts';
import { startEmbedded } from '../../src/store/embedded/server.ts';
import { berthIn, type BerthOptions } from '../support/berth.ts';
import { addressOf } from '../support/database-address.ts';
import { folderForDatabases, testDatabase } from '../support/database.ts';
import { silentLog } from '../support/log.ts';
import { placeCluster } from '../support/prepared-cluster.ts';
import { compileCache } from '../support/service.ts';

// The doctor looks at machines that have nothing yet, and a restore makes an installation.
const onInstallations = hostCommands
  .map(([name]) => name)
  .filter((name) => name !== 'doctor' && name !== 'restore')
  .map((name) => [...name.split(' '), ...(name === 'backup' ? ['made'] : [])]);

/** A folder in which commands are run; PostgreSQL's user can pass through. */
function folderIn(t: TestContext): { folder: string; berth: (args: string[], o?: BerthOptions) => Run } {
  const folder = mkdtempSync(join(folderForDatabases(), 'berth-host-'));
  chmodSync(folder, 0o711);
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const start = berthIn(folder);
  return { folder, berth: (args, options) => start(args, options).ended };
}
type Run = Promise<{ code: number | null; stdout: string; stderr: string }>;

/** One line for a person, and the exit code of a refusal. */
async function refused(run: Run, reason: RegExp): Promise<string> {
  const { code, stdout, stderr } = await run;
  assert.deepEqual([code, stdout], [1, ''], stderr);
  assert.match(stderr, /^berth: [^\n]+\n$/);
  assert.match(stderr, reason);
  return stderr;
}

test('a command for an existing installation is refused in one line where there is none, and makes nothing there', async (t) => {
  const { folder, berth } = folderIn(t);
  assert.ok(onInstallations.length >= 3);
  for (const args of onInstallations) {
    const told = await refused(
      berth(args),
      /There is no Berth installation in .* set BERTH_DATA_DIR .* or run/,
    );
    assert.ok(told.includes(join(folder, 'data')), told);
    await refused(
      berth(args, { env: { BERTH_DATABASE_URL: 'postgres://127.0.0.1:1/berth' } }),
      /There is no Berth installation in .*\/data: /,
    );
    await refused(berth(args, { env: { BERTH_DATA_DIR: join(folder, 'elsewhere') } }), /in .*\/elsewhere: /);
  }
  assert.deepEqual(readdirSync(folder), []);
  writeFileSync(join(folder, 'data'), 'a file');
  for (const args of onInstallations)
    await refused(berth(args), /There is no Berth installation in .*\/data: /);
});

test('a data directory whose service has its database elsewhere is not given one of its own', async (t) => {
  const { folder, berth } = folderIn(t);
  mkdirSync(join(folder, 'data', 'repos'), { recursive: true });
  for (const args of onInstallations)
    await refused(berth(args), /has no database of its own: set BERTH_DATABASE_URL/);
  assert.deepEqual(readdirSync(folder), ['data']);
  assert.deepEqual(readdirSync(join(folder, 'data')), ['repos']);
});

test('a database without Berth’s tables is refused in one line and stays as it is, one of an older version is not taken for keys', async (t) => {
  const { folder, berth } = folderIn(t);
  mkdirSync(join(folder, 'data', 'repos'), { recursive: true });
  const { db, connection, close } = await testDatabase({ migrated: false });
  t.after(close);
  const env = { BERTH_DATABASE_URL: await addressOf(t, connection) };
  for (const args of onInstallations)
    await refused(berth(args, { env }), /no Berth installation in the database of BERTH_DATABASE_URL/);
  assert.equal((await db.sql`select 1 from pg_tables where schemaname = 'public'`).length, 0);
  assert.equal(existsSync(join(folder, 'data', 'encryption-key')), false);
  assert.deepEqual(readdirSync(folder), ['data']);

  const older = await testDatabase();
  t.after(older.close);
  await older.db
    .sql`delete from schema_migrations where version = (select max(version) from schema_migrations)`;
  const old = { BERTH_DATABASE_URL: await addressOf(t, older.connection) };
  for (const args of onInstallations.filter(([name]) => name !== 'backup'))
    await refused(
      berth(args, { env: old }),
      /schema version \d+, this Berth has version \d+: start the service/,
    );
  assert.equal((await berth(['backup', 'made'], { env: old })).code, 0);
});

test('an embedded database without Berth’s tables, as such commands once left behind, is no installation', async (t) => {
  const { folder, berth } = folderIn(t);
  const { dataDir, paths } = readConfig({ BERTH_DATA_DIR: join(folder, 'data') });
  mkdirSync(dataDir, { mode: 0o711 });
  const server = await startEmbedded({
    home: paths.postgres,
    socketDir: join(paths.run, 'pg'),
    log: silentLog,
  });
  await server.stop();
  assert.notEqual(clusterMajor(join(paths.postgres, 'data')), null);
  for (const args of onInstallations)
    await refused(berth(args), /no Berth installation in .*, its database is empty/);
  assert.equal(existsSync(join(folder, 'made.partial')), false);
});

test('an installation whose service does not run is backed up and has its key rotated; one that never ran has no keys', async (t) => {
  const { folder, berth } = folderIn(t);
  mkdirSync(join(folder, 'data'), { mode: 0o711 });
  await placeCluster(join(folder, 'data', 'postgres'), 'service');
  for (const args of [['backup', 'made'], ['rotate-encryption-key']]) {
    const { code, stderr } = await berth(args);
    assert.equal(code, 0, stderr);
  }
  await refused(berth(['host', 'keys', 'create']), /start the service once/);
  // Onto a machine that never had a service.
  const env = { BERTH_DATA_DIR: join(folder, 'fresh') };
  const { code, stderr } = await berth(['restore', 'made'], { env });
  assert.equal(code, 0, stderr);
  assert.equal((await berth(['backup', 'again'], { env })).code, 0);
});

test('what is wrong with a database’s address or a folder is told in one line, without the password', async (t) => {
  const { folder, berth } = folderIn(t);
  mkdirSync(join(folder, 'data', 'repos'), { recursive: true });
  const { connection, close } = await testDatabase();
  t.after(close);
  const good = await addressOf(t, connection);
  const cases: [url: string, reason: RegExp][] = [
    [
      'postgres://u:hidden-word@127.0.0.1:1/berth',
      /cannot be used: connect ECONNREFUSED .*BERTH_DATABASE_URL/,
    ],
    ['postgres://u:hidden-word@no-such-name.invalid/berth', /cannot be used: .*no-such-name/],
    ['postgres://u:hidden-word#x@127.0.0.1/berth', /cannot be read as an address/],
    ['postgres://u:hidden-word%zz@127.0.0.1/berth', /cannot be read as an address/],
    [`${good}_gone`, /cannot be used: database ".*_gone" does not exist/],
    [good.replace(/:[^:@]+@/, ':hidden-word@'), /cannot be used: password authentication failed/],
  ];
  for (const [url, reason] of cases) {
    const told = await refused(berth(['backup', 'made'], { env: { BERTH_DATABASE_URL: url } }), reason);
    assert.equal(told.includes('hidden-word'), false);
  }
  const [url, reason] = cases[0]!;
  const main = fileURLToPath(new URL('../../src/main.mjs', import.meta.url));
  const service = spawnSync(process.execPath, [main], {
    cwd: folder,
    env: { PATH: process.env['PATH'], ...compileCache(), BERTH_DATABASE_URL: url, BERTH_PORT: '0' },
    encoding: 'utf8',
    timeout: 60_000,
  });
  assert.match(service.stderr, reason);
  assert.equal(/hidden-word|\n +at /.test(service.stderr), false, service.stderr);
  writeFileSync(join(folder, 'file'), '');
  await refused(berth(['backup', 'file/made'], { env: { BERTH_DATABASE_URL: good } }), /ENOTDIR.*file\/made/);
});
