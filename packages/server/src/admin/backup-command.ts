import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { join, resolve } from 'node:path';
import type { Config } from '../config.ts';
import { backup } from '../store/backup/backup.ts';
import { BackupError } from '../store/backup/format.ts';
import { restore } from '../store/backup/restore.ts';
import type { Database } from '../store/database.ts';
import { createSnapshotRows } from '../store/snapshots.ts';
import { withDatabase } from './with-database.ts';
import { writeOwnerOnly } from './durable-file.ts';
import { withInstallation } from './installation.ts';
import { readBundle, writeBundles } from './repo-bundles.ts';
import type { RepoEntry } from './repo-bundles.ts';
import { copyChunks, hashesIn } from './snapshot-chunks.ts';

export interface Streams {
  stdout: { write(text: string): unknown };
  stderr: { write(text: string): unknown };
}

/** `manifest.json` of a backup; written last, so that a folder without it is a backup that was cut off. */
interface Manifest {
  format: 'berth-backup';
  formatVersion: 1;
  createdAt: string;
  repos: RepoEntry[];
}

const DATABASE_FILE = 'database.gz';
const SNAPSHOTS_DIR = 'snapshots';

/**
 * `backup <folder>`: the database as of one moment, then every repository, which therefore has each commit that the
 * database names, and the content of the snapshots. The service may go on running. Resolves with the exit code; throws BackupError.
 */
export async function backupCommand(
  config: Config,
  argv: string[],
  streams: Streams = process,
): Promise<number> {
  const target = folderArgument(argv, 'backup <folder>');
  if (existsSync(target)) throw new BackupError(`${target} exists already: name a folder that does not.`);
  const partial = `${target}.partial`;
  const createdAt = new Date().toISOString();
  // Any version: before an upgrade is when a backup is wanted.
  const summary = await withInstallation(config, 'any version', (db) => {
    rmSync(partial, { recursive: true, force: true });
    mkdirSync(join(partial, 'repos'), { recursive: true, mode: 0o700 });
    return backup(db, createWriteStream(join(partial, DATABASE_FILE), { mode: 0o600, flush: true }));
  });
  const repos = await writeBundles(config.paths.repos, join(partial, 'repos'));
  const chunks = await copyChunks(config.paths.snapshots, join(partial, SNAPSHOTS_DIR));
  const manifest: Manifest = { format: 'berth-backup', formatVersion: 1, createdAt, repos };
  writeOwnerOnly(join(partial, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  renameSync(partial, target);

  streams.stdout.write(`${target}\n`);
  streams.stderr.write(
    `Backed up ${summary.rows} rows of ${summary.tables} tables, ${repos.length} repositories and ${chunks} parts of snapshots.\n` +
      `The encryption key is not in the backup: without it the stored secrets cannot be read. Keep a copy of ` +
      `${config.encryptionKey === null ? config.encryptionKeyFile : 'BERTH_ENCRYPTION_KEY'} in another place.\n` +
      `The agents' own files (${config.paths.volumes}, ${config.paths.disks}) are not in it either; see docs/database.md.\n`,
  );
  return 0;
}

/** `restore <folder> [--force]`: into an empty installation whose service does not run. Throws BackupError. */
export async function restoreCommand(
  config: Config,
  argv: string[],
  streams: Streams = process,
): Promise<number> {
  const force = argv.includes('--force');
  const source = folderArgument(
    argv.filter((argument) => argument !== '--force'),
    'restore <folder> [--force]',
  );
  const manifest = readManifest(source);
  const present = existsSync(config.paths.repos)
    ? readdirSync(config.paths.repos).filter((name) => name.endsWith('.git'))
    : [];
  if (present.length > 0 && !force) {
    throw new BackupError(
      `${config.paths.repos} holds repositories: restore into a new data directory, or pass --force to replace them.`,
    );
  }
  const summary = await withDatabase(config, 'alone', async (db) => {
    if (!force) await refuseOthers(db);
    // Whatever may be wrong with the bundles shows before the database is touched.
    const staged = `${config.paths.repos}.restoring`;
    const stagedChunks = `${config.paths.snapshots}.restoring`;
    try {
      await stageRepos(staged, source, manifest.repos);
      rmSync(stagedChunks, { recursive: true, force: true });
      await copyChunks(join(source, SNAPSHOTS_DIR), stagedChunks);
      const result = await restore(db, createReadStream(join(source, DATABASE_FILE)), { force });
      rmSync(config.paths.repos, { recursive: true, force: true });
      renameSync(staged, config.paths.repos);
      rmSync(config.paths.snapshots, { recursive: true, force: true });
      renameSync(stagedChunks, config.paths.snapshots);
      const storedOf = (orgId: string) => hashesIn(config.paths.snapshots, orgId);
      return { ...result, lost: await createSnapshotRows(db).removeBroken(storedOf) };
    } finally {
      rmSync(staged, { recursive: true, force: true });
      rmSync(stagedChunks, { recursive: true, force: true });
    }
  });
  if (summary.lost > 0)
    streams.stderr.write(
      `Snapshots left out, since the backup does not hold all of their content: ${summary.lost}.\n`,
    );
  streams.stderr.write(
    `Restored ${summary.rows} rows of ${summary.tables} tables and ${manifest.repos.length} repositories of ${manifest.createdAt}.\n` +
      `Put the encryption key of that installation to ${config.encryptionKeyFile} (mode 0600) before the start.\n`,
  );
  return 0;
}

async function stageRepos(staged: string, source: string, repos: RepoEntry[]): Promise<void> {
  rmSync(staged, { recursive: true, force: true });
  mkdirSync(staged, { recursive: true, mode: 0o700 });
  for (const entry of repos) {
    try {
      await readBundle(staged, join(source, 'repos'), entry);
    } catch (error) {
      throw new BackupError(`A repository of the backup cannot be read: ${(error as Error).message}`);
    }
  }
}

function folderArgument(argv: string[], usage: string): string {
  const [folder, ...rest] = argv;
  if (!folder || folder.startsWith('-') || rest.length > 0) throw new BackupError(`Usage: ${usage}`);
  return resolve(folder);
}

function readManifest(folder: string): Manifest {
  try {
    const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')) as Manifest;
    if (manifest.format === 'berth-backup' && manifest.formatVersion === 1 && Array.isArray(manifest.repos))
      return manifest;
  } catch {
    // Told below in the same words.
  }
  throw new BackupError(
    `${folder} holds no complete backup: its manifest.json is missing or is of another version.`,
  );
}

/** A service that runs on another machine would write into a database that is being replaced. */
async function refuseOthers(db: Database): Promise<void> {
  const [row] = await db.sql<{ others: number }[]>`
    select count(distinct client_addr)::int + count(*) filter (where client_addr is null)::int as others
    from pg_stat_activity
    where datname = current_database() and application_name = 'berth' and pid <> pg_backend_pid()`;
  if (row && row.others > 0) {
    throw new BackupError('Another Berth is connected to the database: stop it, or pass --force.');
  }
}
