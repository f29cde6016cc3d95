import type { Readable, Writable } from 'node:stream';
import type {
  RunningSandbox,
  SandboxExit,
  SandboxExitReason,
  SandboxStats,
} from '../domain/ports/sandbox.ts';
import type { Group } from './cgroup/group.ts';
import type { Child } from './launch.ts';
import { gone, startTime, tryKill } from './processes.ts';
import { processStats } from './process-stats.ts';

const GONE_TIMEOUT_MS = 10_000;
/** How a shell and bwrap report that SIGKILL ended the program. */
const KILLED_CODE = 128 + 9;

interface Options {
  id: string;
  child: Child;
  initPid: number;
  /** Null where cgroups cannot be written. */
  group: Group | null;
  onEnd(exit: SandboxExit): void;
}

export class BubblewrapSandbox implements RunningSandbox {
  readonly id: string;
  readonly initPid: number;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly exited: Promise<SandboxExit>;
  private readonly child: Child;
  private readonly group: Group | null;
  private readonly initSince: string | null;
  private endedBy: SandboxExitReason | null = null;

  constructor(options: Options) {
    this.id = options.id;
    this.child = options.child;
    this.group = options.group;
    this.initPid = options.initPid;
    this.initSince = startTime(options.initPid);
    this.stdin = options.child.stdin;
    this.stdout = options.child.stdout;
    this.stderr = options.child.stderr;
    // A sandbox that ended breaks its pipe; whoever writes learns of the end by `exited`.
    this.stdin.on('error', () => {});
    this.exited = this.awaitExit(options);
    this.exited.catch(() => {});
  }

  async stats(): Promise<SandboxStats> {
    return this.group ? this.group.stats() : processStats(this.initPid);
  }

  kill(): Promise<SandboxExit> {
    return this.end('killed');
  }

  /** Ends the tree; the first reason stands. */
  end(reason: SandboxExitReason): Promise<SandboxExit> {
    this.endedBy ??= reason;
    this.killTree();
    this.child.kill('SIGKILL');
    return this.exited;
  }

  /** With the init of a PID namespace everything in it dies. bwrap ties it to its monitor only shortly after the start. */
  private killTree(): void {
    this.group?.kill();
    if (this.initSince !== null && startTime(this.initPid) === this.initSince) tryKill(this.initPid);
  }

  private async awaitExit(options: Options): Promise<SandboxExit> {
    const { code, signal } = await exitOf(this.child);
    const wasOutOfMemory =
      (this.group?.oomKills() ?? 0) > 0 && (code === KILLED_CODE || signal === 'SIGKILL');
    this.killTree();
    await gone(this.initPid, this.initSince, GONE_TIMEOUT_MS);
    await this.group?.destroy();
    const exit = { reason: this.endedBy ?? (wasOutOfMemory ? 'oom' : 'exit'), code, signal };
    options.onEnd(exit);
    return exit;
  }
}

function exitOf(child: Child): Promise<{ code: number | null; signal: string | null }> {
  if (child.exitCode !== null || child.signalCode !== null) {
    return Promise.resolve({ code: child.exitCode, signal: child.signalCode });
  }
  return new Promise((resolve) => child.once('exit', (code, signal) => resolve({ code, signal })));
}
