import { chmodSync, lstatSync, mkdirSync, statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { ConfigError } from './config-values.ts';
import type { Config } from './config.ts';
import type { SandboxCapabilities } from './domain/ports/sandbox.ts';

/** Somebody who starts the service from a terminal does not expect anything to be left of it. */
export function isDetached(config: Config, { driver, usable, detached }: SandboxCapabilities): boolean {
  if (config.detach === 'never' || (config.detach === 'auto' && process.stdin.isTTY)) return false;
  if (config.detach === 'always' && usable && !detached) {
    throw new ConfigError(
      `BERTH_DETACH: sandboxes of the ${driver} driver end with the service; use auto or never.`,
    );
  }
  return detached;
}

/** Sandboxes, and as root PostgreSQL, run as other users, who must be able to pass through. */
export function makeEnterable(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o711 });
  const user = process.getuid?.();
  const found = lstatSync(path);
  // The folder of sockets may lie in /tmp, where anybody could have made one of its name.
  if (user !== 0 && (!found.isDirectory() || found.uid !== user))
    throw new ConfigError(
      `BERTH_DATA_DIR: ${path} belongs to another user; use a data directory of your own.`,
    );
  chmodSync(path, 0o711);
  if (user === 0) chmodSync(dirname(path), 0o711);
}

/** Below it nothing can be relied on to be stored. */
const ROOM_MIN_BYTES = 16 * 1024 * 1024;

/** Why the disk of a folder can take no more; none = it can. */
export function roomProblems(path: string): string[] {
  const { bavail, bsize } = statfsSync(path);
  return bavail * bsize < ROOM_MIN_BYTES ? ['The disk of the service is full.'] : [];
}

/** Certificate authorities that the operator trusts besides the system's, by the usual variables of git and Node. */
export function extraCaFiles(env: NodeJS.ProcessEnv): string[] {
  return ['GIT_SSL_CAINFO', 'SSL_CERT_FILE', 'NODE_EXTRA_CA_CERTS']
    .map((name) => env[name])
    .filter((path): path is string => path !== undefined && path !== '');
}
