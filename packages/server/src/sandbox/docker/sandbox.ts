import type { Readable, Writable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type {
  RunningSandbox,
  SandboxExit,
  SandboxExitReason,
  SandboxStats,
} from '../../domain/ports/sandbox.ts';
import { readNumber } from '../cgroup/files.ts';
import type { Group } from '../cgroup/group.ts';
import { OomKills } from '../oom-kills.ts';
import { cutLog } from '../output-log.ts';
import { isDying, isRunning, startTime } from '../processes.ts';
import type { Usage } from '../process-stats.ts';
import { inspect, removeContainer } from './details.ts';
import { logTellsOfOom } from './kernel-log.ts';
import { tellsOfOom } from './late-oom.ts';
import { EngineError, type Engine } from './engine.ts';
import type { Outputs } from './streams.ts';
import { engineUsage } from './usage.ts';

const KILLED_CODE = 128 + 9;
/** For what was written and not read yet: a reader that stands still must not hold the end of a sandbox. */
const OUTPUT_TIMEOUT_MS = 15_000;
const OUTPUT_AFTER_KILL_MS = 500;
const DEATH_WATCH_MS = 20;

/** What brings the outputs of a container here. */
export interface Output {
  /** Resolves once everything that the program wrote has come. */
  ended: Promise<void>;
  close(): void;
  drop: Outputs['drop'];
}

export interface DockerSandboxParts {
  id: string;
  engine: Engine;
  /** The container's name. */
  name: string;
  streams: { stdin: Writable; stdout: Readable; stderr: Readable };
  logFile: string | null;
  /** The engine's cgroup of it; null where it cannot be seen from here. */
  group: Group | null;
  /** Host pid of its init; 0 when that is not known. */
  initPid: number;
  /** Podman does not tell of it when the kernel killed for want of memory. */
  isPodman: boolean;
  isFrozen: boolean;
  output: Output;
  onEnd(): void;
  /** For tests: how often the kernel of this host has killed for want of memory, in whatever group. */
  hostOomKills?: () => number;
  /** For tests: in place of the kernel's log. */
  kernelLog?: string;
}

export class DockerSandbox implements RunningSandbox {
  readonly id: string;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly logFile: string | null;
  readonly exited: Promise<SandboxExit>;
  isFrozen: boolean;
  private readonly parts: DockerSandboxParts;
  private readonly initSince: string | null;
  private endedBy: SandboxExitReason | null = null;
  private hasEnded = false;
  private readonly oomKills: OomKills;
  /** The same of the whole host, for a group that was gone before its count could be read. */
  private readonly hostOomKills: OomKills;
  private memoryByteSeconds = 0;
  private sampledMs = performance.now();

  constructor(parts: DockerSandboxParts) {
    this.parts = parts;
    this.id = parts.id;
    ({ stdin: this.stdin, stdout: this.stdout, stderr: this.stderr } = parts.streams);
    this.logFile = parts.logFile;
    this.isFrozen = parts.isFrozen;
    this.initSince = parts.initPid > 0 ? sinceOf(parts.initPid) : null;
    this.oomKills = new OomKills(
      () => parts.group?.oomKills() ?? 0,
      () => this.pids().some(isDying),
    );
    this.hostOomKills = new OomKills(parts.hostOomKills ?? oomKillsOfHost, () => this.pids().some(isDying));
    this.stdin.on('error', () => {});
    this.exited = this.awaitExit();
    this.exited.catch(() => {});
  }

  async stats(): Promise<SandboxStats> {
    const { group, engine, name } = this.parts;
    const now = group ? group.usage() : await engineUsage(engine, name);
    this.count(now);
    return { ...now, memoryByteSeconds: Math.round(this.memoryByteSeconds) };
  }

  processCount(): number | null {
    return this.hasEnded ? null : (this.parts.group?.processCount() ?? null);
  }

  /** Called about once a second. */
  async sample(): Promise<void> {
    const { group } = this.parts;
    if (this.hasEnded) return;
    if (group) {
      this.count(group.usage());
      // The engine may tell of an end long after it; what ended the program is not of long ago then.
      if (this.initSince === null || !isRunning(this.parts.initPid, this.initSince)) return;
      this.oomKills.look();
      this.hostOomKills.look();
    }
    if (this.logFile !== null) await cutLog(this.logFile);
  }

  async freeze(): Promise<void> {
    if (this.hasEnded) throw new Error(`The sandbox ${this.id} has ended.`);
    if (this.isFrozen) return;
    await this.shift('pause', true);
  }

  async thaw(): Promise<void> {
    if (!this.isFrozen) return;
    this.isFrozen = false;
    await this.shift('unpause', false);
  }

  async stop(graceMs: number): Promise<SandboxExit> {
    if (this.hasEnded) return this.exited;
    this.endedBy ??= 'killed';
    await this.thaw().catch(() => undefined);
    await this.post('kill?signal=SIGTERM').catch(() => undefined);
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
    if (!this.hasEnded) {
      this.endedBy ??= reason;
      void this.endNow();
    }
    return this.exited;
  }

  /** Host pids of everything inside, as far as they can be seen. */
  pids(): number[] {
    return this.parts.group?.pids() ?? [];
  }

  private async endNow(): Promise<void> {
    this.parts.output.drop();
    // An engine does not kill what is paused.
    await this.thaw().catch(() => undefined);
    const { engine, name } = this.parts;
    await this.post('kill?signal=SIGKILL').catch(() => removeContainer(engine, name).catch(() => undefined));
  }

  /**
   * After an error the container itself says whether it was done. One that may stand still counts as frozen, so that it is
   * thawed.
   */
  private async shift(action: 'pause' | 'unpause', isFrozen: boolean): Promise<void> {
    try {
      await this.post(action);
      this.isFrozen = isFrozen;
    } catch (error) {
      const details = await inspect(this.parts.engine, this.parts.name).catch(() => undefined);
      if (this.hasEnded) throw error;
      this.isFrozen = details === undefined || (details?.paused ?? false);
      if (details?.paused !== isFrozen) throw error;
    }
  }

  private async post(action: string): Promise<void> {
    await this.parts.engine.call('POST', `/containers/${this.parts.name}/${action}`);
  }

  private count(now: Usage): void {
    const nowMs = performance.now();
    this.memoryByteSeconds += (now.memoryBytes * (nowMs - this.sampledMs)) / 1000;
    this.sampledMs = nowMs;
  }

  private async awaitExit(): Promise<SandboxExit> {
    const { engine, name, output, onEnd, group, initPid, isPodman } = this.parts;
    const atDeath = isPodman && group ? oomKillsAtDeath(group, initPid) : null;
    // Waited for only after the end of the container.
    atDeath?.catch(() => undefined);
    const code = await waitForEnd(engine, name);
    this.hasEnded = true;
    this.isFrozen = false;
    const wasKilled = code === KILLED_CODE || code === null;
    const isOom = wasKilled && this.endedBy === null && (await this.wasOutOfMemory(atDeath));
    const waitMs = this.endedBy === null ? OUTPUT_TIMEOUT_MS : OUTPUT_AFTER_KILL_MS;
    await Promise.race([output.ended, delay(waitMs, undefined, { ref: false })]);
    output.close();
    // It has ended, whatever comes of this; what is left of it is listed, and removed later.
    await removeContainer(engine, name).catch(() => undefined);
    onEnd();
    return { reason: this.endedBy ?? (isOom ? 'oom' : 'exit'), ...codeOf(code) };
  }

  /**
   * Of a program that was killed, and not by us. The engine takes its cgroup away at once, so mostly it alone knows. It
   * does not tell which process was killed: where a tool was before, the end of the program is not called out of memory.
   */
  private async wasOutOfMemory(atDeath: ReturnType<typeof oomKillsAtDeath> | null): Promise<boolean> {
    const { engine, name, isPodman } = this.parts;
    const { kills, isFinal } = (await atDeath) ?? { kills: 0, isFinal: false };
    if (this.oomKills.hasNew(kills)) return true;
    if (isFinal || this.oomKills.hasOld) return false;
    const details = await inspect(engine, name).catch(() => null);
    if (details?.oomKilled) return true;
    // Podman takes the group away before it tells of the end, and may have been faster than the look at it.
    if (isPodman) return this.hostOomKills.hasNew() && this.isLoggedOom();
    return details !== null && tellsOfOom(engine, name);
  }

  /** Which group it was that the kernel has killed in: another one's kill at the same moment is no reason of this end. */
  private isLoggedOom(): boolean {
    const { group, kernelLog } = this.parts;
    const names = group?.places().flatMap(({ path }) => path.split('/')) ?? [];
    const own = names.find((name) => CONTAINER_GROUP.test(name));
    return own !== undefined && logTellsOfOom(own, kernelLog);
  }
}

/** Null also when it cannot be told: then kills for want of memory are not looked for, and that is all. */
function sinceOf(pid: number): string | null {
  try {
    return startTime(pid);
  } catch {
    return null;
  }
}

/** The folder that Podman makes for one container; below it there may be others. */
const CONTAINER_GROUP = /^libpod-[0-9a-f]{64}$/;

/**
 * Looks at the kernel's count until its init has ended. `isFinal`: it was there to be read after that, so that nothing can
 * have been missed.
 */
async function oomKillsAtDeath(group: Group, initPid: number): Promise<{ kills: number; isFinal: boolean }> {
  const since = sinceOf(initPid);
  let kills = 0;
  while (since !== null && isRunning(initPid, since)) {
    kills = Math.max(kills, group.oomKills());
    await delay(DEATH_WATCH_MS, undefined, { ref: false });
  }
  const last = group.oomKillsIfThere();
  return { kills: Math.max(kills, last ?? 0), isFinal: last !== null };
}

/** Counted since the kernel was started; none where it does not count them. */
const oomKillsOfHost = (): number => readNumber('/proc/vmstat', 'oom_kill') ?? 0;

/** Engines tell a signal as 128 and its number, as shells do; the program may have chosen such a number itself. */
function codeOf(code: number | null): { code: number | null; signal: string | null } {
  return code === null ? { code: null, signal: 'SIGKILL' } : { code, signal: null };
}

/**
 * The exit code; null when the container was taken away, or nobody knows it. The engine may be restarted meanwhile, so it is
 * asked again. It may also fail at waiting, and tells that beside a code which means nothing then.
 */
async function waitForEnd(engine: Engine, name: string): Promise<number | null> {
  for (;;) {
    try {
      const answer = (await engine.call('POST', `/containers/${name}/wait`, undefined, 0)) as {
        StatusCode?: number;
        Error?: { Message?: string } | null;
      } | null;
      const code = answer?.StatusCode ?? -1;
      if (code >= 0 && !answer?.Error?.Message) return code;
    } catch (error) {
      if (error instanceof EngineError && error.status === 404) return null;
    }
    await delay(500, undefined, { ref: false });
    const details = await inspect(engine, name).catch(() => undefined);
    if (details === null) return null;
    if (details && !details.running) return details.exitCode < 0 ? null : details.exitCode;
  }
}
