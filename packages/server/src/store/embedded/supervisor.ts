import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { RunnableEngine } from './engine.ts';
import type { Identity } from './identity.ts';
import { signal } from './stale.ts';

/**
 * The shell between the service and PostgreSQL. Its standard input is a pipe that only the service holds: when the
 * service ends in any way, kill -9 included, the reader sees the end of file and PostgreSQL shuts down. Arguments:
 * signal of that shutdown (INT = fast, QUIT = immediate), a folder to remove afterwards or "", the command. The
 * shell itself ignores the signals that a service manager sends to everything at once, so that a drain has its database.
 */
const SCRIPT = `
trap '' HUP INT TERM
signal=$1; remove=$2; shift 2
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
( read -r _ <&3; kill -"$signal" "$server" ) 2>/dev/null &
reader=$!
exec 3<&-
wait "$server"; status=$?
kill -9 "$reader" 2>/dev/null
[ -z "$remove" ] || rm -rf "$remove"
exit "$status"
`;

export interface Supervised {
  /** Resolves with the exit code once PostgreSQL has ended, whoever ended it. */
  ended: Promise<number>;
  /** Asks for the shutdown; idempotent. */
  stop(): void;
  /** Kills the supervising shell's group: the last resort of a stop that hangs. */
  kill(): void;
}

export interface SuperviseOptions {
  clusterDir: string;
  settings: Record<string, string>;
  logFile: string;
  identity: Identity;
  /** Set by tests: shut down without a checkpoint, then remove this folder. */
  removeAfterwards?: string;
}

/** Starts PostgreSQL in a session of its own: Ctrl-C in the service's terminal must not stop it before the service. */
export function supervise(engine: RunnableEngine, options: SuperviseOptions): Supervised {
  const settings = Object.entries(options.settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const command = [join(engine.binDir, 'postgres'), '-D', options.clusterDir, ...settings];
  const remove = options.removeAfterwards ?? '';
  const log = openSync(options.logFile, 'a', 0o600);
  const child = spawn('/bin/sh', ['-c', SCRIPT, 'sh', remove ? 'QUIT' : 'INT', remove, ...command], {
    stdio: ['pipe', log, log],
    cwd: '/',
    env: { PATH: '/usr/bin:/bin', LC_ALL: 'C', ...engine.env },
    detached: true,
    ...options.identity.spawn,
  });
  closeSync(log);
  letGo(child);
  return {
    ended: new Promise((resolve) => {
      child.once('error', () => resolve(127));
      child.once('exit', (code) => resolve(code ?? 128));
    }),
    stop() {
      // Whoever stops it waits for the end, and the process must live until then.
      child.ref();
      child.stdin?.destroy();
    },
    kill: () => {
      if (child.pid) signal(-child.pid, 'SIGKILL');
    },
  };
}

/** PostgreSQL serves the process; it must not be what keeps it alive. */
function letGo(child: ChildProcess): void {
  child.unref();
  child.stdin?.on('error', () => {});
  (child.stdin as unknown as { unref?(): void } | null)?.unref?.();
}
