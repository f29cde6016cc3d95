import type { Readable, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type {
  RunningSandbox,
  SandboxExit,
  SandboxExitReason,
  SandboxStats,
} from '../domain/ports/sandbox.ts';
import type { Streams } from './launch.ts';
import type { Monitor } from './monitor.ts';
import { OomKills } from './oom-kills.ts';
import { cutLog } from './output-log.ts';
import { isDying, tryKill } from './processes.ts';
import type { Usage } from './process-stats.ts';
import type { Tree } from './tree.ts';

/** How a shell and bwrap report that SIGKILL ended the program. */
const KILLED_CODE = 128 + 9;

export interface LocalSandboxParts {
  id: string;
  monitor: Monitor;
  streams: Streams;
  logFile: string | null;
  tree: Tree;
  /** Whether its disk is full: a program that fails at that moment failed of it. */
  isDiskFull(): boolean;
  onEnd(exit: SandboxExit): void;
}

/** A sandbox whose processes are on this host and of our making. */
export class LocalSandbox implements RunningSandbox {
  readonly id: string;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly logFile: string | null;
  readonly exited: Promise<SandboxExit>;
  private readonly monitor: Monitor;
  private readonly tree: Tree;
  private endedBy: SandboxExitReason | null = null;
  private hasEnded = false;
  private wantsFrozen = false;
  private isHeld = false;
  private memoryByteSeconds = 0;
  private sampledMs = performance.now();
  private readonly oomKills: OomKills;

  constructor(parts: LocalSandboxParts) {
    this.id = parts.id;
    this.monitor = parts.monitor;
    this.tree = parts.tree;
    this.stdin = parts.streams.stdin;
    this.stdout = parts.streams.stdout;
    this.stderr = parts.streams.stderr;
    this.logFile = parts.logFile;
    this.oomKills = new OomKills(
      () => this.tree.oomKills(),
      () => this.tree.pids().some(isDying),
    );
    // A sandbox that ended breaks its pipe; whoever writes learns of the end by `exited`.
    this.stdin.on('error', () => {});
    this.exited = this.awaitExit(parts);
    this.exited.catch(() => {});
  }

  get isFrozen(): boolean {
    const isHeldAlone = this.isHeld && !this.wantsFrozen;
    return !this.hasEnded && !isHeldAlone && (this.tree.freezer?.isFrozen() ?? false);
  }

  async stats(): Promise<SandboxStats> {
    const now = this.usage();
    return { ...now, memoryByteSeconds: Math.round(this.memoryByteSeconds) };
  }

  processCount(): number | null {
    return this.hasEnded ? null : this.tree.processCount();
  }

  /** From now on it is somebody's: memory is counted over time. */
  begin(): void {
    this.sampledMs = performance.now();
  }

  /** Called about once a second: counts memory over time, and what tells an out-of-memory kill from a later one. */
  async sample(): Promise<void> {
    if (this.hasEnded) return;
    this.usage();
    this.oomKills.look();
    if (this.logFile !== null) await cutLog(this.logFile);
  }

  async freeze(): Promise<void> {
    const freezer = this.freezer();
    if (this.hasEnded) throw new Error(`The sandbox ${this.id} has ended.`);
    this.wantsFrozen = true;
    await freezer.freeze();
  }

  async thaw(): Promise<void> {
    const freezer = this.freezer();
    this.wantsFrozen = false;
    if (!this.isHeld) freezer.thaw();
  }

  /** Lets it stand still while it is looked at, whatever is asked for meanwhile; does nothing where it cannot be frozen. */
  async hold(): Promise<void> {
    const { freezer } = this.tree;
    if (!freezer || this.hasEnded || this.isHeld) return;
    this.wantsFrozen ||= freezer.isFrozen();
    this.isHeld = true;
    await freezer.freeze().catch(() => undefined);
  }

  /** Ends `hold`. */
  release(): void {
    if (!this.isHeld) return;
    this.isHeld = false;
    if (!this.wantsFrozen && !this.hasEnded) this.tree.freezer?.thaw();
  }

  async stop(graceMs: number): Promise<SandboxExit> {
    if (this.hasEnded) return this.exited;
    this.endedBy ??= 'killed';
    this.tree.freezer?.thaw();
    for (const pid of this.tree.agentPids()) tryKill(pid, 'SIGTERM');
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
    this.tree.kill();
    this.monitor.kill();
    return this.exited;
  }

  /** Host pids of everything inside. */
  pids(): number[] {
    return this.tree.pids();
  }

  private freezer(): NonNullable<Tree['freezer']> {
    if (!this.tree.freezer) throw new Error('Sandboxes cannot be frozen here: no cgroup allows it.');
    return this.tree.freezer;
  }

  private usage(): Usage {
    const now = this.tree.usage();
    const nowMs = performance.now();
    this.memoryByteSeconds += (now.memoryBytes * (nowMs - this.sampledMs)) / 1000;
    this.sampledMs = nowMs;
    return now;
  }

  private async awaitExit({ onEnd, isDiskFull }: LocalSandboxParts): Promise<SandboxExit> {
    const { code, signal } = await this.monitor.ended;
    // Kills of long ago were tools; the program itself lived on.
    const wasOutOfMemory = (code === KILLED_CODE || signal === 'SIGKILL') && this.oomKills.hasNew();
    this.hasEnded = true;
    const ownReason = wasOutOfMemory ? 'oom' : code !== 0 && isDiskFull() ? 'disk_full' : 'exit';
    await this.tree.destroy();
    const exit: SandboxExit = { reason: this.endedBy ?? ownReason, code, signal };
    onEnd(exit);
    return exit;
  }
}
