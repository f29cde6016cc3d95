import type { IncomingMessage } from 'node:http';
import { createWriteStream, existsSync, mkdirSync } from 'node:fs';
import { truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { once } from 'node:events';
import { deed } from '../../domain/deeds.ts';
import { isId } from '../../domain/ids.ts';
import type { Log } from '../../domain/log.ts';
import type {
  Isolation,
  RunningSandbox,
  SandboxCapabilities,
  SandboxDriver,
  SandboxSpec,
} from '../../domain/ports/sandbox.ts';
import { writeEtc } from '../etc.ts';
import { groupOf } from '../cgroup/foreign.ts';
import { quotaFor, volumeUse, type Quota } from '../disk/quota.ts';
import { DiskWatch } from '../disk/watch.ts';
import { closedStreams } from '../launch.ts';
import { refuseBadSpec } from '../launch-args.ts';
import { logFileIn, openLog } from '../output-log.ts';
import { putFile } from '../put-file.ts';
import { Sampler } from '../sampler.ts';
import { isFilterArch } from '../seccomp/filter.ts';
import { ociProfile } from '../seccomp/oci.ts';
import { prepareRunDir, prepareVolume, removeVolume, type SandboxUser } from '../volume.ts';
import { containerBody, containerName, labels } from './container.ts';
import { inspect, refuseOtherRuntime, removeContainer, type ContainerDetails } from './details.ts';
import { Engine } from './engine.ts';
import { dockerCapabilities, proveIsolation } from './probe.ts';
import { DockerSandbox, type DockerSandboxParts, type Output } from './sandbox.ts';
import { startContainer, UnknownStart } from './start.ts';
import { inputOf, takeApart } from './streams.ts';

export interface DockerOptions {
  areaDir: string;
  /** Names this installation's containers: letters, digits and `-`. */
  name: string;
  log: Log;
  socket: string;
  /** Null = the engine's default. */
  runtime: string | null;
  image: string;
}

const FIRST_UID = 200_000;

/** Containers of Docker or Podman, by the Docker Engine API; gVisor and Kata ride on it by the name of a runtime. */
export class DockerDriver implements SandboxDriver {
  readonly name = 'docker';
  private readonly options: DockerOptions;
  private readonly engine: Engine;
  private readonly isRoot = process.getuid?.() === 0;
  private readonly starting = new Set<string>();
  private readonly running = new Map<string, DockerSandbox>();
  private readonly disks: DiskWatch;
  private readonly sampler: Sampler;
  private proven: Promise<Isolation> | null = null;
  private isolationIs: Isolation | null = null;
  private podman: Promise<boolean> | null = null;

  constructor(options: DockerOptions) {
    this.options = options;
    this.engine = new Engine(options.socket);
    this.disks = new DiskWatch(options.log);
    this.sampler = new Sampler(options.log);
  }

  isolation(): Promise<Isolation> {
    this.proven ??= proveIsolation(this, this.options.areaDir, this.isRoot).then(
      (isolation) => (this.isolationIs = isolation),
    );
    // The engine may come up later.
    this.proven.catch(() => (this.proven = null));
    return this.proven;
  }

  capabilities(): Promise<SandboxCapabilities> {
    const { socket, runtime, image } = this.options;
    return dockerCapabilities({
      driver: this,
      engine: this.engine,
      socket,
      runtime,
      image,
      isRoot: this.isRoot,
    });
  }

  /** A declared lack: see `capabilities`. */
  async prepare(): Promise<never> {
    throw new Error('Containers are not made before it is known whose they will be.');
  }

  async start(spec: SandboxSpec): Promise<RunningSandbox> {
    if (!isId(spec.id)) throw new Error(`"${spec.id}" is no id of a sandbox.`);
    if (this.running.has(spec.id) || this.starting.has(spec.id))
      throw new Error(`The sandbox ${spec.id} is running already.`);
    if (spec.transparentEgress) throw new Error('Containers have no transparent egress.');
    refuseBadSpec(spec);
    for (const { hostPath, path } of spec.binds)
      if (!existsSync(hostPath))
        throw new Error(`The sandbox did not start: ${hostPath}, to be seen as ${path}, is not there.`);
    this.starting.add(spec.id);
    const name = containerName(this.options.name, spec.id);
    try {
      return await this.startOnce(spec, name);
    } catch (error) {
      await removeContainer(this.engine, name).catch(() => undefined);
      const why = error instanceof Error ? error.message : String(error);
      const what =
        error instanceof UnknownStart
          ? 'It is not known whether the sandbox started'
          : 'The sandbox did not start';
      throw new Error(`${what}: ${why}`, { cause: error });
    } finally {
      this.starting.delete(spec.id);
    }
  }

  private async startOnce(spec: SandboxSpec, name: string): Promise<RunningSandbox> {
    const user = this.userOf(spec.slot);
    await prepareVolume(spec.volumeDir, user);
    prepareRunDir(spec.runDir, user);
    const quota = await quotaFor(spec.volumeDir, spec.limits.diskBytes);
    const logFile = spec.detached ? logFileIn(spec.runDir) : null;
    const uid = user?.uid ?? process.getuid?.() ?? 0;
    const gid = user?.gid ?? process.getgid?.() ?? 0;
    const body = containerBody(spec, {
      image: this.options.image,
      runtime: this.options.runtime,
      isolation: this.isolationIs,
      ...{ uid, gid, logFile },
      installation: this.options.name,
      seccomp: await this.seccomp(),
      etc: this.etcOf(uid, gid),
      fileBytes: quota.fileBytes,
    });
    await this.engine.call('POST', `/containers/create?name=${name}`, body);
    const podman = await this.isPodman();
    if (podman && this.options.runtime !== null)
      await refuseOtherRuntime(this.engine, name, this.options.runtime);
    // Attached before the start, so that no first word is lost.
    const attached = spec.detached ? null : await this.attach(name);
    const details = await startContainer(this.engine, name, this.options.log).catch((error: unknown) => {
      attached?.close();
      throw error;
    });
    const output = logFile === null ? attached : this.follow(name, logFile);
    return this.keep(
      {
        id: spec.id,
        name,
        streams: attached?.streams ?? closedStreams(),
        logFile,
        output: output ?? { ended: Promise.resolve(), close: () => {}, drop: () => {} },
        details,
      },
      spec.volumeDir,
      quota,
      podman,
    );
  }

  async adopt(id: string): Promise<RunningSandbox | null> {
    const here = this.running.get(id);
    if (here) return here;
    if (!isId(id)) return null;
    const name = containerName(this.options.name, id);
    const details = await inspect(this.engine, name);
    const text = details?.labels[labels.detached];
    if (!details?.running || text === undefined) return null;
    const { volumeDir, logFile, diskBytes } = JSON.parse(text) as {
      volumeDir: string;
      logFile: string;
      diskBytes: number;
    };
    const quota = await quotaFor(volumeDir, diskBytes);
    const podman = await this.isPodman();
    const meanwhile = this.running.get(id);
    if (meanwhile) return meanwhile;
    const output = this.follow(name, logFile);
    const streams = closedStreams();
    return this.keep({ id, name, streams, logFile, output, details }, volumeDir, quota, podman);
  }

  async list(): Promise<string[]> {
    const filters = encodeURIComponent(
      JSON.stringify({ label: [`${labels.installation}=${this.options.name}`] }),
    );
    const found = (await this.engine.call('GET', `/containers/json?all=1&filters=${filters}`)) as {
      Labels: Record<string, string>;
    }[];
    return [...new Set(found.map(({ Labels }) => Labels[labels.sandbox] ?? ''))].filter(isId);
  }

  async remove(id: string): Promise<void> {
    if (!isId(id)) return;
    await this.running.get(id)?.kill();
    await removeContainer(this.engine, containerName(this.options.name, id));
  }

  prepareVolume(volumeDir: string, slot: number): Promise<void> {
    return prepareVolume(volumeDir, this.userOf(slot));
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

  private keep(
    parts: Omit<DockerSandboxParts, 'engine' | 'group' | 'initPid' | 'isFrozen' | 'isPodman' | 'onEnd'> & {
      details: ContainerDetails | null;
    },
    volumeDir: string,
    quota: Quota,
    isPodman: boolean,
  ): DockerSandbox {
    const { details, ...rest } = parts;
    const sandbox = new DockerSandbox({
      ...rest,
      engine: this.engine,
      group: details && details.pid > 0 ? groupOf(details.pid) : null,
      initPid: details?.pid ?? 0,
      isFrozen: details?.paused ?? false,
      isPodman,
      onEnd: () => {
        this.running.delete(rest.id);
        this.sampler.remove(rest.id);
        this.disks.remove(rest.id);
      },
    });
    this.running.set(rest.id, sandbox);
    this.sampler.add(sandbox);
    this.disks.add({
      id: rest.id,
      volumeDir,
      quota,
      hostDir: volumeDir,
      pace: null,
      isBroken: () => false,
      pids: () => sandbox.pids(),
      end: () => void sandbox.end('disk_full'),
      // A pause by the engine takes longer than most measurements.
      hold: async () => undefined,
      release: () => undefined,
    });
    return sandbox;
  }

  private async attach(name: string) {
    const socket = await this.engine.hijack(`/containers/${name}/attach?stream=1&stdin=1&stdout=1&stderr=1`);
    const { stdout, stderr, drop } = takeApart(socket);
    // A reset is an end as well.
    const ended = once(socket, 'close').then(
      () => undefined,
      () => undefined,
    );
    const close = (): void => void socket.destroy();
    return { streams: { stdin: inputOf(socket), stdout, stderr }, ended, close, drop };
  }

  /** Writes what the engine has kept of the outputs, and all that follows, to the log file: from the beginning, once. */
  private follow(name: string, logFile: string): Output {
    let isClosed = false;
    let source: IncomingMessage | null = null;
    const copy = async (): Promise<void> => {
      // Before anything is waited for, so that it is there as soon as the sandbox is.
      const log = createWriteStream(logFile, { fd: openLog(logFile) });
      try {
        // That of an earlier service may be large.
        await deed(logFile, () => truncate(logFile));
        source = await this.engine.stream('GET', `/containers/${name}/logs?follow=1&stdout=1&stderr=1`);
        if (isClosed) source.destroy();
        const { stdout, stderr } = takeApart(source);
        stdout.pipe(log, { end: false });
        stderr.pipe(log, { end: false });
        await Promise.all([once(stdout, 'end'), once(stderr, 'end')]);
      } finally {
        log.end();
      }
      await once(log, 'close');
    };
    const ended = copy().catch((error: unknown) =>
      this.options.log.warn('The output of a sandbox cannot be followed.', { name, error: String(error) }),
    );
    const close = (): void => {
      isClosed = true;
      source?.destroy();
    };
    return { ended, close, drop: () => {} };
  }

  private isPodman(): Promise<boolean> {
    this.podman ??= isPodman(this.engine);
    this.podman.catch(() => (this.podman = null));
    return this.podman;
  }

  /** Docker takes the profile itself, Podman the path of its file. */
  private async seccomp(): Promise<string> {
    if (!isFilterArch(process.arch)) throw new Error(`There is no system call filter for ${process.arch}.`);
    const text = JSON.stringify(ociProfile(process.arch));
    if (!(await this.isPodman())) return text;
    const file = join(this.options.areaDir, 'seccomp.json');
    mkdirSync(this.options.areaDir, { recursive: true });
    putFile(file, text, 0o644);
    return file;
  }

  /** The user's name, and no resolver of the host. Images need not know the user. */
  private etcOf(uid: number, gid: number): { hostPath: string; path: string }[] {
    const folder = join(this.options.areaDir, 'etc');
    writeEtc(folder);
    const passwd = join(this.options.areaDir, `passwd-${uid}`);
    const group = join(this.options.areaDir, `group-${gid}`);
    const agent = `agent:x:${uid}:${gid}:agent:/home/agent:/bin/sh`;
    putFile(passwd, `root:x:0:0:root:/:/usr/sbin/nologin\n${agent}\n`, 0o644);
    putFile(group, `root:x:0:\nagent:x:${gid}:\n`, 0o644);
    return [
      { hostPath: passwd, path: '/etc/passwd' },
      { hostPath: group, path: '/etc/group' },
      ...['hosts', 'resolv.conf', 'nsswitch.conf'].map((name) => ({
        hostPath: join(folder, name),
        path: `/etc/${name}`,
      })),
    ];
  }

  private userOf(slot: number): SandboxUser {
    if (!Number.isInteger(slot) || slot < 0) throw new Error(`${slot} is no slot of an agent.`);
    return this.isRoot ? { uid: FIRST_UID + slot, gid: FIRST_UID + slot } : null;
  }
}

async function isPodman(engine: Engine): Promise<boolean> {
  const version = (await engine.call('GET', '/version')) as { Components?: { Name?: string }[] };
  return (version.Components ?? []).some(({ Name }) => Name === 'Podman Engine');
}
