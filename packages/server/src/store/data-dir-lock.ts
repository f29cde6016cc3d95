import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** The data directory is in use, or cannot be locked. The message is one clear line for the operator. */
export class DataDirError extends Error {
  /** True = another process has the directory. */
  readonly isHeld: boolean;

  constructor(message: string, isHeld: boolean) {
    super(message);
    this.isHeld = isHeld;
  }
}

export interface DataDirLock {
  release(): void;
}

/** A lock ends when its handle is collected as garbage: the held ones are kept here. */
const held = new Set<DatabaseSync>();

/**
 * Claims a data directory for this process, or throws DataDirError that names the process which has it. The lock is
 * one of the kernel (fcntl, through SQLite, since Node has no call for it): it ends with the process however that
 * ends, so there is no stale lock and no guess about pids that are in use again. Containers that share the folder
 * on one machine exclude each other as well. Nothing else may open the file `lock` in this process: closing it would
 * drop the lock (fcntl(2), "POSIX record locks").
 */
export function lockDataDir(dataDir: string): DataDirLock {
  refuseClosed(dataDir);
  const file = join(dataDir, 'lock');
  const pidFile = join(dataDir, 'service.pid');
  const handle = tryLock(file, dataDir, pidFile);
  held.add(handle);
  chmodSync(file, 0o600);
  writeFileSync(pidFile, `${process.pid}\n`, { mode: 0o600 });
  return {
    release() {
      if (!held.delete(handle)) return;
      try {
        // While the lock is still held: afterwards the file may be that of the next one.
        rmSync(pidFile, { force: true });
      } finally {
        handle.close();
      }
    },
  };
}

/** Says who may not write where, since SQLite would only say that it cannot open a file. */
function refuseClosed(dataDir: string): void {
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o711 });
    accessSync(dataDir, constants.R_OK | constants.W_OK | constants.X_OK);
    if (existsSync(join(dataDir, 'lock'))) accessSync(join(dataDir, 'lock'), constants.W_OK);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    const why =
      code === 'EROFS' ? 'its file system is read-only' : `this user (uid ${process.getuid?.()}) may not`;
    throw new DataDirError(
      `The data directory ${dataDir} cannot be written (${code}): ${why}. Run as the user who owns it, or set BERTH_DATA_DIR to another folder.`,
      false,
    );
  }
}

function tryLock(file: string, dataDir: string, pidFile: string): DatabaseSync {
  let handle: DatabaseSync | undefined;
  try {
    handle = new DatabaseSync(file);
    handle.exec('begin exclusive');
    return handle;
  } catch (error) {
    if (handle?.isOpen) handle.close();
    if ((error as { errcode?: number }).errcode !== 5) {
      throw new DataDirError(
        `The data directory ${dataDir} cannot be locked: ${(error as Error).message}.`,
        false,
      );
    }
    throw new DataDirError(
      `Another Berth (pid ${readHolder(pidFile)}) uses the data directory ${dataDir}: stop it, or set BERTH_DATA_DIR to another folder.`,
      true,
    );
  }
}

function readHolder(pidFile: string): string {
  try {
    return readFileSync(pidFile, 'utf8').trim() || 'unknown';
  } catch {
    return 'unknown';
  }
}
