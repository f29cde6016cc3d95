import { closeSync, mkdirSync, openSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isId } from '../domain/ids.ts';
import type { SandboxLimits } from '../domain/ports/sandbox.ts';
import { saysGone } from './processes.ts';
import { putFile } from './put-file.ts';

/** What the next process of the service must know to take up a detached sandbox. It holds no secret. */
export interface SandboxRecord {
  id: string;
  /** Tells processes of this boot from those of an earlier one with the same numbers. */
  bootId: string;
  initPid: number;
  initSince: string;
  monitorPid: number;
  monitorSince: string;
  volumeDir: string;
  logFile: string;
  limits: SandboxLimits;
  /** Its host user, where that is not the agent's. */
  ownUid: number | null;
  /** Whether its processes were put into cgroups. */
  hasGroup: boolean;
}

/** Files of detached sandboxes, closed for everybody but the service. */
export class Records {
  private readonly folder: string;

  constructor(areaDir: string) {
    this.folder = join(areaDir, 'detached');
  }

  write(record: SandboxRecord): void {
    mkdirSync(this.folder, { recursive: true, mode: 0o700 });
    putFile(this.file(record.id), JSON.stringify(record), 0o600);
  }

  /** Null when there is none, or it was cut off by a crash. Throws when it cannot be read: then there may be one. */
  read(id: string): SandboxRecord | null {
    try {
      return JSON.parse(readFileSync(this.file(id), 'utf8')) as SandboxRecord;
    } catch (error) {
      if (!saysGone(error) && !(error instanceof SyntaxError)) throw error;
      return null;
    }
  }

  /** The file to which bwrap's monitor writes the exit code, also when the service is away. */
  statusFile(id: string): string {
    mkdirSync(this.folder, { recursive: true, mode: 0o700 });
    return join(this.folder, `${id}.status`);
  }

  /**
   * Reads the exit code that the monitor wrote, once; null when it was killed before it could. The file is opened right
   * now, so that it is found whoever tidies up first.
   */
  exitCodeReader(id: string): () => number | null {
    const fd = openSync(this.statusFile(id), 'r');
    return () => {
      const text = readFileSync(fd, 'utf8');
      closeSync(fd);
      return exitCodeIn(text);
    };
  }

  /** What the monitor has written by now; null also when there is no file of it. */
  exitCode(id: string): number | null {
    try {
      return exitCodeIn(readFileSync(join(this.folder, `${id}.status`), 'utf8'));
    } catch {
      return null;
    }
  }

  list(): string[] {
    try {
      const ids = readdirSync(this.folder).map((name) => name.replace(/\.(json|status)$/, ''));
      return [...new Set(ids)].filter(isId);
    } catch (error) {
      if (!saysGone(error)) throw error;
      return [];
    }
  }

  remove(id: string): void {
    rmSync(this.file(id), { force: true });
    rmSync(join(this.folder, `${id}.status`), { force: true });
  }

  private file(id: string): string {
    return join(this.folder, `${id}.json`);
  }
}

function exitCodeIn(text: string): number | null {
  const code = /"exit-code":\s*(\d+)/.exec(text)?.[1];
  return code === undefined ? null : Number(code);
}

let bootId: string | null = null;
export function currentBootId(): string {
  return (bootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim());
}
