import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { backupCommand, restoreCommand } from '../../src/admin/backup-command.ts';
import { readConfig } from '../../src/config.ts';
import type { Config } from '../../src/config.ts';
import { newId } from '../../src/domain/ids.ts';
import { runGit } from '../../src/repos/git-process.ts';
import { RepoStore } from '../../src/repos/repo-store.ts';
import { lockDataDir } from '../../src/store/data-dir-lock.ts';
import { openDatabase } from '../../src/store/database.ts';
import type { Database } from '../../src/store/database.ts';
import { startEmbedded } from '../../src/store/embedded/server.ts';
import { migrate } from '../../src/store/migrate.ts';
import { createSnapshotRows } from '../../src/store/snapshots.ts';
import { folderForDatabases } from '../support/database.ts';
import { silentLog } from '../support/log.ts';
import { placeCluster } from '../support/prepared-cluster.ts';

const commits = `blob\nmark :1\ndata 5\nhello
commit refs/heads/main\ncommitter A <a@example.org> 0 +0000\ndata 1\nx\nM 100644 :1 AGENTS.md
reset refs/berth/commits/kept\nfrom refs/heads/main\n\ndone\n`;

function configOf(root: string, name: string): Config {
  return readConfig({ BERTH_DATA_DIR: join(root, name) });
}

/** Gives an installation a database without a row, as its first start would. */
async function withDatabase(config: Config): Promise<Config> {
  mkdirSync(config.dataDir, { mode: 0o711 });
  await placeCluster(config.paths.postgres, 'service');
  return config;
}

function capture(): { streams: Parameters<typeof backupCommand>[2]; text: () => string } {
  let text = '';
  const write = (part: string): void => void (text += part);
  return { streams: { stdout: { write }, stderr: { write } }, text: () => text };
}

/** Does `work` as the service would: the lock held, PostgreSQL up. */
async function asService<T>(config: Config, work: (db: Database) => Promise<T>): Promise<T> {
  const lock = lockDataDir(config.dataDir);
  const server = await startEmbedded({
    home: config.paths.postgres,
    socketDir: join(config.paths.run, 'pg'),
    log: silentLog,
  });
  const db = openDatabase({ connection: server.connection, pool: 2 });
  try {
    await migrate(db);
    return await work(db);
  } finally {
    await db.close();
    await server.stop();
    lock.release();
  }
}

async function refsOf(config: Config, agentId: string): Promise<string> {
  const gitDir = join(config.paths.repos, `${agentId}.git`);
  const result = await runGit(['for-each-ref'], { gitDir, timeoutMs: 10_000 });
  return result.stdout.toString() + readFileSync(join(gitDir, 'HEAD'), 'utf8');
}

test('a running installation is backed up and restored elsewhere with its rows and repositories', async () => {
  const root = mkdtempSync(join(folderForDatabases(), 'berth-backup-'));
  chmodSync(root, 0o755);
  const source = await withDatabase(configOf(root, 'source'));
  const target = configOf(root, 'target');
  const folder = join(root, 'backup');
  const [filled, empty] = [newId(), newId()];
  const { streams, text } = capture();
  try {
    const repos = new RepoStore(source.paths.repos);
    const refs = await asService(source, async (db) => {
      await db.sql`insert into orgs (id, name) values (${newId()}, 'kept')`;
      await repos.make(filled, async (gitDir) => {
        const result = await runGit(['fast-import', '--quiet', '--done', '--force'], {
          gitDir,
          timeoutMs: 10_000,
          input: commits,
        });
        assert.equal(result.code, 0, result.stderr);
      });
      await repos.make(empty, () => Promise.resolve());
      assert.equal(await backupCommand(source, [folder], streams), 0);
      await assert.rejects(restoreCommand(source, [folder, '--force'], streams), /Another Berth \(pid \d+\)/);
      return refsOf(source, filled);
    });
    assert.match(refs, /refs\/berth\/commits\/kept\n.*refs\/heads\/main/);
    assert.match(text(), /The encryption key is not in the backup/);
    assert.equal(statSync(folder).mode & 0o077, 0);
    await assert.rejects(backupCommand(source, [folder], streams), /exists already/);

    const bundle = join(folder, 'repos', `${filled}.bundle`);
    const good = readFileSync(bundle);
    writeFileSync(bundle, good.subarray(0, good.length - 8));
    await assert.rejects(
      restoreCommand(target, [folder], streams),
      /A repository of the backup cannot be read/,
    );
    assert.ok(!existsSync(target.paths.repos) || readdirSync(target.paths.repos).length === 0);
    writeFileSync(bundle, good);

    assert.equal(await restoreCommand(target, [folder], streams), 0);
    await assert.rejects(restoreCommand(target, [folder], streams), /holds repositories/);
    assert.equal(await refsOf(target, filled), refs);
    assert.equal(await refsOf(target, empty), 'ref: refs/heads/main\n');
    const names = await asService(target, (db) => db.sql<{ name: string }[]>`select name from orgs`);
    assert.deepEqual(
      names.map((row) => row.name),
      ['kept'],
    );

    rmSync(join(folder, 'manifest.json'));
    await assert.rejects(restoreCommand(target, [folder, '--force'], streams), /holds no complete backup/);
  } finally {
    rmSync(root, { recursive: true });
  }
});

test('snapshots come back with their content, and one whose content is missing is left out and told of', async () => {
  const root = mkdtempSync(join(folderForDatabases(), 'berth-backup-'));
  chmodSync(root, 0o755);
  const source = await withDatabase(configOf(root, 'source'));
  const target = await withDatabase(configOf(root, 'target'));
  const folder = join(root, 'backup');
  const [orgId, agentId, whole, broken] = [newId(), newId(), newId(), newId()];
  const { streams, text } = capture();
  const stored = { bytes: 1, storedBytes: 1, name: '', orgId, agentId };
  const chunkOf = (digit: string) => ({ hash: digit.repeat(64), bytes: 1 });
  const pathOf = (config: Config, digit: string) =>
    join(config.paths.snapshots, orgId, digit.repeat(2), digit.repeat(64));
  try {
    await asService(source, async (db) => {
      await db.sql`insert into orgs (id, name) values (${orgId}, 'kept')`;
      await db.sql`insert into agents (id, org_id, name, description, model)
        values (${agentId}, ${orgId}, 'Ours', '', 'test/model')`;
      const rows = createSnapshotRows(db);
      await rows.insert({ ...stored, id: whole, chunks: [chunkOf('a'), chunkOf('b')] });
      // As when the service deletes a snapshot between the copy of the database and that of the files.
      await rows.insert({ ...stored, id: broken, chunks: [chunkOf('a'), chunkOf('c')] });
      for (const digit of ['a', 'b']) {
        mkdirSync(join(pathOf(source, digit), '..'), { recursive: true });
        writeFileSync(pathOf(source, digit), digit);
      }
      writeFileSync(join(source.paths.snapshots, orgId, 'tmp-unfinished'), 'x');
      assert.equal(await backupCommand(source, [folder], streams), 0);
    });
    assert.match(text(), /2 parts of snapshots/);
    assert.equal(await restoreCommand(target, [folder], streams), 0);
    assert.match(text(), /Snapshots left out, .*: 1\./);
    assert.deepEqual(readdirSync(join(target.paths.snapshots, orgId)).sort(), ['aa', 'bb']);
    assert.equal(readFileSync(pathOf(target, 'b'), 'utf8'), 'b');
    assert.equal(existsSync(`${target.paths.snapshots}.restoring`), false);
    const left = await asService(target, (db) => db.sql<{ id: string }[]>`select id from snapshots`);
    assert.deepEqual(
      left.map(({ id }) => id),
      [whole],
    );
  } finally {
    rmSync(root, { recursive: true });
  }
});
