import { join } from 'node:path';
import type { Isolation, SandboxSpec } from '../../domain/ports/sandbox.ts';

export const labels = {
  installation: 'dev.berth.installation',
  sandbox: 'dev.berth.sandbox',
  /** JSON of what the next process of the service must know. */
  detached: 'dev.berth.detached',
} as const;

export interface ContainerOptions {
  image: string;
  runtime: string | null;
  /** Null before it was proven. */
  isolation: Isolation | null;
  /** Numbers on the host, which are the same inside. */
  uid: number;
  gid: number;
  installation: string;
  /** As the engine takes it: the profile itself for Docker, its file for Podman. */
  seccomp: string;
  /** Host files by their path inside: what every sandbox sees of /etc. */
  etc: { hostPath: string; path: string }[];
  fileBytes: number;
  /** Written by the service; of a detached sandbox alone. */
  logFile: string | null;
}

/** Host threads that a kernel in user space takes for itself, over those of the programs in it. */
export const USER_KERNEL_THREADS = 192;
const MIB = 1024 * 1024;
const CPU_PERIOD_US = 100_000;

/** The engine's own list, which is replaced when one is given, and what tells of the host rather than of the sandbox. */
const maskedPaths = [
  ...[
    '/proc/acpi',
    '/proc/kcore',
    '/proc/keys',
    '/proc/latency_stats',
    '/proc/timer_list',
    '/proc/timer_stats',
  ],
  ...['/proc/sched_debug', '/proc/scsi', '/proc/asound', '/sys/firmware', '/sys/devices/virtual/powercap'],
  ...['/proc/cmdline', '/proc/kallsyms', '/proc/modules', '/proc/interrupts', '/proc/key-users'],
];
const readonlyPaths = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];

export const containerName = (installation: string, id: string): string => `berth-${installation}-${id}`;

/** The body of `POST /containers/create` (Docker Engine API 1.41): everything closed that a container can do without. */
export function containerBody(spec: SandboxSpec, options: ContainerOptions): Record<string, unknown> {
  const { limits } = spec;
  const [program, ...args] = spec.command;
  // Until a trial has shown which it is, it may be one, which ends with code 2 when it gets no thread.
  const mayBeUserKernel = options.isolation === null || options.isolation === 'user-kernel';
  return {
    Image: options.image,
    Entrypoint: [program],
    Cmd: args,
    Env: Object.entries(spec.env).map(([name, value]) => `${name}=${value}`),
    WorkingDir: '/workspace',
    Hostname: 'agent',
    User: `${options.uid}:${options.gid}`,
    Tty: false,
    OpenStdin: !spec.detached,
    StdinOnce: !spec.detached,
    AttachStdin: !spec.detached,
    AttachStdout: !spec.detached,
    AttachStderr: !spec.detached,
    NetworkDisabled: true,
    // An image may ask for a check that runs commands; nothing runs here but what was asked for.
    Healthcheck: { Test: ['NONE'] },
    Labels: {
      [labels.installation]: options.installation,
      [labels.sandbox]: spec.id,
      ...(options.logFile === null
        ? {}
        : {
            [labels.detached]: JSON.stringify({
              volumeDir: spec.volumeDir,
              logFile: options.logFile,
              diskBytes: limits.diskBytes,
            }),
          }),
    },
    HostConfig: {
      NetworkMode: 'none',
      IpcMode: 'private',
      CapDrop: ['ALL'],
      SecurityOpt: ['no-new-privileges', `seccomp=${options.seccomp}`],
      ReadonlyRootfs: true,
      // Reaps what the program leaves behind, and passes signals on.
      Init: true,
      Privileged: false,
      MaskedPaths: maskedPaths,
      ReadonlyPaths: readonlyPaths,
      Memory: limits.memoryBytes,
      MemorySwap: limits.memoryBytes,
      CpuPeriod: CPU_PERIOD_US,
      CpuQuota: Math.max(1000, Math.round(limits.cpus * CPU_PERIOD_US)),
      CpuShares: Math.max(2, Math.round(1024 * limits.cpus)),
      PidsLimit: limits.pids + (mayBeUserKernel ? USER_KERNEL_THREADS : 0),
      Ulimits: [
        ulimit('nofile', limits.openFiles),
        // Counted per host user; the limit of the cgroup is the one that counts. Podman fails without it.
        ulimit('nproc', Math.max(limits.pids * 4, 4096)),
        ulimit('fsize', options.fileBytes),
        ulimit('core', 0),
      ],
      ShmSize: Math.min(64 * MIB, Math.floor(limits.memoryBytes / 8)),
      Tmpfs: { '/tmp': `rw,exec,nosuid,nodev,mode=1777,size=${tmpBytes(limits.memoryBytes)}` },
      Binds: binds(spec, options),
      LogConfig:
        options.logFile === null ? { Type: 'none' } : { Type: 'json-file', Config: { 'max-size': '1m' } },
      RestartPolicy: { Name: 'no' },
      OomScoreAdj: 500,
      ...(options.runtime === null ? {} : { Runtime: options.runtime }),
    },
  };
}

function ulimit(name: string, value: number): { Name: string; Soft: number; Hard: number } {
  return { Name: name, Soft: value, Hard: value };
}

const tmpBytes = (memoryBytes: number): number => Math.min(512 * MIB, Math.floor(memoryBytes / 2));

function binds(spec: SandboxSpec, { etc }: ContainerOptions): string[] {
  const readOnly = [...etc, { hostPath: spec.runDir, path: '/run/berth' }, ...spec.binds];
  const all = [
    `${join(spec.volumeDir, 'workspace')}:/workspace:rw,rprivate`,
    `${join(spec.volumeDir, 'home')}:/home/agent:rw,rprivate`,
    ...readOnly.map(({ hostPath, path }) => `${hostPath}:${path}:ro,rprivate`),
  ];
  const bad = all.find((bind) => bind.split(':').length !== 3);
  if (bad !== undefined) throw new Error(`A path with a colon cannot be bound by an engine: ${bad}`);
  return all;
}
