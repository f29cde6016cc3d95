import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chownSync,
  existsSync,
  lchownSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { RunnableEngine } from './engine.ts';
import { EmbeddedError } from './errors.ts';
import { chooseMaker, ensureFolder } from './identity.ts';
import type { Identity } from './identity.ts';

export const USER = 'berth';

const run = promisify(execFile);
/** It takes a second or two; on a slow disk a minute. */
const INITDB_MS = 300_000;

/** Major version of the data directory; null = there is none yet. */
export function clusterMajor(clusterDir: string): number | null {
  const file = join(clusterDir, 'PG_VERSION');
  return existsSync(file) ? Number.parseInt(readFileSync(file, 'utf8'), 10) : null;
}

/**
 * Makes the data directory once: UTF8, locale C (its order is the same on every machine and library version), page
 * checksums, and a password for the only user, so that other local users cannot get in even where the socket's
 * folder could be reached. The password stays in a file of the service, mode 0600.
 */
export async function createCluster(
  engine: RunnableEngine,
  clusterDir: string,
  passwordFile: string,
  identity: Identity,
  durable: boolean,
): Promise<void> {
  // Renamed when complete: initdb that was cut off leaves nothing that looks like a data directory.
  const partial = `${clusterDir}.partial`;
  rmSync(partial, { recursive: true, force: true });
  const maker = chooseMaker(identity);
  ensureFolder(partial, 0o700, maker);
  const password = randomBytes(32).toString('base64url');
  const handedOver = `${partial}.password`;
  writeFileSync(handedOver, `${password}\n`, { mode: 0o600, flag: 'w' });
  if (maker.spawn.uid !== undefined) chownSync(handedOver, maker.uid, maker.gid);
  const options = [
    '--encoding=UTF8',
    '--locale=C',
    '--data-checksums',
    '--auth=scram-sha-256',
    `--username=${USER}`,
  ];
  // Nobody waits for the disk, and files of the log as small as they can be leave the memory to others.
  if (!durable) options.push('--no-sync', '--wal-segsize=1');
  try {
    await run(join(engine.binDir, 'initdb'), [...options, `--pwfile=${handedOver}`, '-D', partial], {
      cwd: '/',
      env: { PATH: '/usr/bin:/bin', LC_ALL: 'C', ...engine.env },
      timeout: INITDB_MS,
      ...maker.spawn,
    });
  } catch (error) {
    const said = (error as { stderr?: string }).stderr?.trim() || String(error);
    throw new EmbeddedError(`The database could not be made in ${clusterDir}: ${said}`);
  } finally {
    rmSync(handedOver, { force: true });
  }
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (maker.uid !== identity.uid) handOver(partial, identity);
  renameSync(partial, clusterDir);
}

function handOver(folder: string, to: Identity): void {
  lchownSync(folder, to.uid, to.gid);
  for (const entry of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    lchownSync(join(folder, entry), to.uid, to.gid);
  }
}
