import type { Readable, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type {
  RunningSandbox,
  SandboxExit,
  SandboxExitReason,
  SandboxStats,
} from '../domain/ports/sandbox.ts';
import type { Group } from './cgroup/group.ts';
import type { Streams } from './launch.ts';
import type { Monitor } from './monitor.ts';
import { cutLog } from './output-log.ts';
import { gone, startTime, tryKill } from './processes.ts';
import { namespacePids, processStats, type Usage } from './process-stats.ts';

const GONE_TIMEOUT_MS = 10_000;
/** How a shell and bwrap report that SIGKILL ended the program. */
const KILLED_CODE = 128 + 9;

interface Options {
  id: string;
  monitor: Monitor;
  streams: Streams;
  logFile: string | null;
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
  readonly logFile: string | null;
  readonly exited: Promise<SandboxExit>;
  private readonly monitor: Monitor;
  private readonly group: Group | null;
  private readonly initSince: string | null;
  private endedBy: SandboxExitReason | null = null;
  private hasEnded = false;
  private memoryByteSeconds = 0;
  private sampledMs = performance.now();
  private oomKills: number;

  constructor(options: Options) {
    this.id = options.id;
    this.monitor = options.monitor;
    this.group = options.group;
    this.initPid = options.initPid;
    this.initSince = startTime(options.initPid);
    this.stdin = options.streams.stdin;
    this.stdout = options.streams.stdout;
    this.stderr = options.streams.stderr;
    this.logFile = options.logFile;
    this.oomKills = this.group?.oomKills() ?? 0;
    // A sandbox that ended breaks its pipe; whoever writes learns of the end by `exited`.
    this.stdin.on('error', () => {});
    this.exited = this.awaitExit(options);
    this.exited.catch(() => {});
  }

  get isFrozen(): boolean {
    return !this.hasEnded && (this.group?.isFrozen() ?? false);
  }

  async stats(): Promise<SandboxStats> {
    const now = this.usage();
    return { ...now, memoryByteSeconds: Math.round(this.memoryByteSeconds) };
  }

  /** Called about once a second: counts memory over time, and what tells an out-of-memory kill from a later one. */
  sample(): void {
    if (this.hasEnded) return;
    this.usage();
    this.oomKills = this.group?.oomKills() ?? 0;
    if (this.logFile !== null) cutLog(this.logFile);
  }

  async freeze(): Promise<void> {
    if (!this.group?.canFreeze) throw new Error('Sandboxes cannot be frozen here: no cgroup allows it.');
    if (this.hasEnded) throw new Error(`The sandbox ${this.id} has ended.`);
    await this.group.freeze();
  }

  async thaw(): Promise<void> {
    if (!this.group?.canFreeze) throw new Error('Sandboxes cannot be frozen here: no cgroup allows it.');
    this.group.thaw();
  }

  async stop(graceMs: number): Promise<SandboxExit> {
    if (this.hasEnded) return this.exited;
    this.endedBy ??= 'killed';
    this.group?.thaw();
    // bwrap's own init would not pass the signal on, and its monitor would die of it at once.
    for (const pid of this.pids()) if (pid !== this.initPid) tryKill(pid, 'SIGTERM');
    const timer = new AbortController();
    const grace = delay(graceMs, undefined, { signal: timer.signal }).catch(() => undefined);
    await Promise.race([this.exited, grace]);
    timer.abort();
    return this.kill();
  }

  kill(): Promise<SandboxExit> {
    return this.end('killed');
  }

  /** Ends the tree; the first reason stands. */
  end(reason: SandboxExitReason): Promise<SandboxExit> {
    this.endedBy ??= reason;
    this.killTree();
    this.monitor.kill();
    return this.exited;
  }

  /** Host pids of everything inside. */
  pids(): number[] {
    return this.group?.pids() ?? namespacePids(this.initPid);
  }

  private usage(): Usage {
    const now = this.group ? this.group.usage() : processStats(this.initPid);
    const nowMs = performance.now();
    this.memoryByteSeconds += (now.memoryBytes * (nowMs - this.sampledMs)) / 1000;
    this.sampledMs = nowMs;
    return now;
  }

  /** With the init of a PID namespace everything in it dies. bwrap ties it to its monitor only shortly after the start. */
  private killTree(): void {
    this.group?.kill();
    if (this.initSince !== null && startTime(this.initPid) === this.initSince) tryKill(this.initPid);
  }

  private async awaitExit(options: Options): Promise<SandboxExit> {
    const { code, signal } = await this.monitor.ended;
    // Kills of long ago were tools; the program itself lived on.
    const wasOutOfMemory =
      (this.group?.oomKills() ?? 0) > this.oomKills && (code === KILLED_CODE || signal === 'SIGKILL');
    this.hasEnded = true;
    this.killTree();
    await gone(this.initPid, this.initSince, GONE_TIMEOUT_MS);
    await this.group?.destroy();
    const exit = { reason: this.endedBy ?? (wasOutOfMemory ? 'oom' : 'exit'), code, signal };
    options.onEnd(exit);
    return exit;
  }
}
