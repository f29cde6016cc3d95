import { readdirSync, readFileSync, readlinkSync, realpathSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { EmbeddedError } from './errors.ts';

const PORT = 5432;

/** Name of the socket in its folder; PostgreSQL names it after a port even when it listens on none. */
export const SOCKET_NAME = `.s.PGSQL.${PORT}`;

/**
 * Clears what a crash left: ends a server that still runs on this cluster (one that is just shutting down after its
 * service was killed), then removes the pid file and the socket. PostgreSQL itself refuses to start when the pid in
 * its file is alive, even if that pid belongs to something else by now. The caller holds the lock of the data
 * directory, so no other service can own that server.
 */
export async function clearStale(clusterDir: string, socketDir: string, waitMs = 60_000): Promise<void> {
  const pidFile = join(clusterDir, 'postmaster.pid');
  const pid = readPid(pidFile);
  if (pid === null) return removeSocket(socketDir);
  // Without /proc nothing can be told of that pid: PostgreSQL's own check has the word.
  if (process.platform !== 'linux') return;

  const deadline = Date.now() + waitMs;
  let asked = false;
  for (;;) {
    const left = processesIn(clusterDir);
    if (left.length === 0) break;
    if (!asked && left.includes(pid)) signal(pid, 'SIGINT');
    asked = true;
    if (Date.now() > deadline) {
      throw new EmbeddedError(
        `Another PostgreSQL (pid ${left.join(', ')}) still uses ${clusterDir}; stop it first.`,
      );
    }
    await delay(50);
  }
  rmSync(pidFile, { force: true });
  removeSocket(socketDir);
}

/** Null = no file, or one without a number. */
export function readPid(pidFile: string): number | null {
  try {
    const pid = Number.parseInt(readFileSync(pidFile, 'utf8'), 10);
    return pid > 0 ? pid : null;
  } catch {
    return null;
  }
}

/** Every process of a PostgreSQL server has its data directory as the working directory. */
export function processesIn(directory: string): number[] {
  const real = realpathSync(directory);
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return readlinkSync(`/proc/${name}/cwd`) === real;
      } catch {
        // It ended meanwhile, is a zombie, or belongs to a user whose processes we cannot see.
        return false;
      }
    })
    .map(Number);
}

/** A negative pid is a process group, as with kill(2). */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has just ended.
  }
}

function removeSocket(socketDir: string): void {
  rmSync(join(socketDir, SOCKET_NAME), { force: true });
  rmSync(join(socketDir, `${SOCKET_NAME}.lock`), { force: true });
}
