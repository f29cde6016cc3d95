import { spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isId } from '../../domain/ids.ts';
import type { Log } from '../../domain/log.ts';
import type {
  Isolation,
  RunningSandbox,
  SandboxCapabilities,
  SandboxDriver,
  SandboxSpec,
} from '../../domain/ports/sandbox.ts';
import { volumeUse } from '../disk/quota.ts';
import { closedStreams, MARK_VARIABLE, type Streams } from '../launch.ts';
import { refuseBadSpec } from '../launch-args.ts';
import { adoptedMonitor, childMonitor } from '../monitor.ts';
import { logFileIn, openLog } from '../output-log.ts';
import { isRunning, startTime } from '../processes.ts';
import { currentBootId, Records } from '../record.ts';
import { LocalSandbox, type LocalSandboxParts } from '../running.ts';
import { Sampler } from '../sampler.ts';
import { started } from '../started.ts';
import { prepareRunDir, prepareVolume, removeVolume } from '../volume.ts';
import { markedByEnvironment, markedTree } from './marked.ts';
import { makeRoot, translate } from './root.ts';

export interface ProcessDriverOptions {
  areaDir: string;
  /** Names this installation's processes on the host: letters, digits and `-`. */
  name: string;
  log: Log;
}

/** Writes the exit code of a detached program, whoever is there to see it. */
const WATCH = 'status=$1; shift; "$@"; code=$?; echo "\\"exit-code\\": $code" > "$status"; exit $code';

/**
 * Agents as plain processes under the user of the service: NO isolation at all. For the development of Berth on machines
 * where nothing else can be had; the service refuses it without an explicit word.
 */
export class ProcessDriver implements SandboxDriver {
  readonly name = 'process';
  private readonly options: ProcessDriverOptions;
  private readonly running = new Map<string, LocalSandbox>();
  private readonly records: Records;
  private readonly sampler: Sampler;

  constructor(options: ProcessDriverOptions) {
    this.options = options;
    this.records = new Records(options.areaDir);
    this.sampler = new Sampler(options.log);
  }

  async isolation(): Promise<Isolation> {
    return 'none';
  }

  async capabilities(): Promise<SandboxCapabilities> {
    return {
      driver: this.name,
      isolation: 'none',
      usable: true,
      problems: [],
      limits: {
        memory: 'none',
        cpu: 'none',
        pids: 'none',
        disk: 'none',
        openFiles: 'per-process',
        output: 'watched',
      },
      accounting: false,
      freeze: false,
      detached: true,
      ownUser: false,
      transparentEgress: false,
      warmPool: false,
      notes: [
        'UNSAFE: agents run as plain processes of this machine, with all that the user of the service may read and do.',
      ],
    };
  }

  /** A declared lack: see `capabilities`. */
  async prepare(): Promise<never> {
    throw new Error('Plain processes are not made before it is known whose they will be.');
  }

  async start(spec: SandboxSpec): Promise<RunningSandbox> {
    if (!isId(spec.id)) throw new Error(`"${spec.id}" is no id of a sandbox.`);
    if (spec.transparentEgress) throw new Error('Plain processes have no transparent egress.');
    refuseBadSpec(spec);
    for (const { hostPath, path } of spec.binds)
      if (!existsSync(hostPath))
        throw new Error(`The sandbox did not start: ${hostPath}, to be seen as ${path}, is not there.`);
    await prepareVolume(spec.volumeDir, null);
    if (this.running.has(spec.id)) throw new Error(`The sandbox ${spec.id} is running already.`);
    prepareRunDir(spec.runDir, null);
    const root = this.rootOf(spec.id);
    rmSync(root, { recursive: true, force: true });
    makeRoot(root, spec);
    const { child, streams, logFile } = this.spawn(spec, root);
    if (logFile !== null) {
      const pid = child.pid ?? 0;
      const since = startTime(pid) ?? '';
      this.records.write({
        id: spec.id,
        bootId: currentBootId(),
        ...{ initPid: pid, initSince: since, monitorPid: pid, monitorSince: since },
        volumeDir: spec.volumeDir,
        logFile,
        limits: spec.limits,
        ownUid: null,
        hasGroup: false,
      });
      child.unref();
    }
    const tree = markedTree(this.markOf(spec.id));
    return this.keep({ id: spec.id, monitor: childMonitor(child), streams, logFile, tree });
  }

  async adopt(id: string): Promise<RunningSandbox | null> {
    const here = this.running.get(id);
    if (here) return here;
    const record = isId(id) ? this.records.read(id) : null;
    if (!record || record.bootId !== currentBootId()) return null;
    if (!isRunning(record.initPid, record.initSince)) return null;
    const process = { pid: record.initPid, since: record.initSince };
    const monitor = adoptedMonitor(process, process, this.records.exitCodeReader(id));
    const { logFile } = record;
    return this.keep({ id, monitor, streams: closedStreams(), logFile, tree: markedTree(this.markOf(id)) });
  }

  async list(): Promise<string[]> {
    const prefix = `${this.options.name}/`;
    const marked = markedByEnvironment(prefix).map(({ mark }) => mark.slice(prefix.length));
    return [...new Set([...this.running.keys(), ...marked, ...this.records.list()])].filter(isId);
  }

  async remove(id: string): Promise<void> {
    if (!isId(id)) return;
    await this.running.get(id)?.kill();
    await markedTree(this.markOf(id)).destroy();
    this.forget(id);
  }

  prepareVolume(volumeDir: string): Promise<void> {
    return prepareVolume(volumeDir, null);
  }

  volumeUse(volumeDir: string): Promise<{ bytes: number; entries: number }> {
    return volumeUse(volumeDir);
  }

  removeVolume(volumeDir: string): Promise<void> {
    return removeVolume(volumeDir);
  }

  async close(): Promise<void> {
    const attached = [...this.running.values()].filter((sandbox) => sandbox.logFile === null);
    await Promise.all(attached.map((sandbox) => sandbox.kill()));
    this.sampler.close();
  }

  private spawn(spec: SandboxSpec, root: string) {
    const logFile = spec.detached ? logFileIn(spec.runDir) : null;
    const log = logFile === null ? null : openLog(logFile);
    const command = spec.command.map((text) => translate(text, root, spec.binds));
    const limit = ['--core=0', `--nofile=${spec.limits.openFiles}`, `--fsize=${spec.limits.diskBytes}`];
    const watch = spec.detached ? ['/bin/sh', '-c', WATCH, 'sh', this.emptyStatus(spec.id)] : [];
    const env = Object.entries(spec.env).map(([name, text]) => [name, translate(text, root, spec.binds)]);
    try {
      const child = started(
        spawn('/usr/bin/prlimit', [...limit, '--', ...watch, ...command], {
          cwd: join(spec.volumeDir, 'workspace'),
          env: {
            ...(Object.fromEntries(env) as Record<string, string>),
            BERTH_SANDBOX_ROOT: root,
            [MARK_VARIABLE]: this.markOf(spec.id),
          },
          // A group of its own, so that a key pressed in the service's terminal does not end it.
          detached: true,
          stdio: log === null ? ['pipe', 'pipe', 'pipe'] : ['ignore', log, log],
        }),
      );
      const streams: Streams = log === null ? (child as unknown as Streams) : closedStreams();
      return { child, streams, logFile };
    } finally {
      if (log !== null) closeSync(log);
    }
  }

  private keep(parts: Omit<LocalSandboxParts, 'onEnd' | 'isDiskFull'>): LocalSandbox {
    const sandbox = new LocalSandbox({
      ...parts,
      isDiskFull: () => false,
      onEnd: () => this.forget(parts.id),
    });
    this.running.set(parts.id, sandbox);
    this.sampler.add(sandbox);
    return sandbox;
  }

  private forget(id: string): void {
    this.running.delete(id);
    this.sampler.remove(id);
    this.records.remove(id);
    rmSync(this.rootOf(id), { recursive: true, force: true });
  }

  private emptyStatus(id: string): string {
    const file = this.records.statusFile(id);
    closeSync(openSync(file, 'w', 0o600));
    return file;
  }

  private markOf(id: string): string {
    return `${this.options.name}/${id}`;
  }

  private rootOf(id: string): string {
    return join(this.options.areaDir, 'roots', id);
  }
}
