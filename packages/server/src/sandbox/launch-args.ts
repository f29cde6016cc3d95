import { join } from 'node:path';
import type { BlankSpec, SandboxSpec } from '../domain/ports/sandbox.ts';
import type { Area } from './area.ts';

/**
 * Descriptors that bwrap is started with; it closes each before the sandbox's own program runs. `status` is a file, which
 * only detached sandboxes have.
 */
export const fds = { args: 3, seccomp: 4, info: 5, block: 6, status: 7 } as const;

const MIB = 1024 * 1024;
/** The kernel takes at most a quarter of the stack limit (8 MiB) as arguments and environment. */
const ENVIRONMENT_MAX_BYTES = 1_500_000;
const ENTRY_MAX_BYTES = 128 * 1024 - 1;

const namespaces = ['user', 'pid', 'net', 'ipc', 'uts', 'cgroup'].map((name) => `--unshare-${name}`);

/**
 * Everything that bwrap is told by `--args`, NUL-separated. It goes over a descriptor and not the command line, which
 * any process of the host may read. The order matters: later mounts cover earlier ones, and the root closes last.
 */
export function launchArguments(spec: SandboxSpec | BlankSpec, area: Area): Buffer {
  refuseBadSpec(spec);
  const volumeDir = 'volumeDir' in spec ? spec.volumeDir : null;
  const { memoryBytes } = spec.limits;
  const tmpBytes = Math.min(512 * MIB, Math.floor(memoryBytes / 2));
  const shmBytes = Math.min(64 * MIB, Math.floor(memoryBytes / 8));
  const args = [
    ...namespaces,
    '--disable-userns',
    ...['--uid', '1000', '--gid', '1000', '--hostname', 'agent'],
    ...['--cap-drop', 'ALL', '--new-session', '--clearenv'],
    ...(spec.detached ? ['--json-status-fd', String(fds.status)] : ['--die-with-parent']),
    ...Object.entries(spec.env).flatMap(([name, value]) => ['--setenv', name, value]),
    ...area.rootArgs,
    ...['--proc', '/proc'],
    ...area.maskArgs,
    ...[
      '--dev',
      '/dev',
      '--size',
      String(shmBytes),
      '--perms',
      '1777',
      '--tmpfs',
      '/dev/shm',
      '--remount-ro',
      '/dev',
    ],
    ...['--size', String(tmpBytes), '--perms', '1777', '--tmpfs', '/tmp'],
    // A blank one has the mount points.
    ...(volumeDir === null
      ? ['--dir', '/workspace']
      : ['--bind', join(volumeDir, 'workspace'), '/workspace']),
    ...(volumeDir === null ? ['--dir', '/home/agent'] : ['--bind', join(volumeDir, 'home'), '/home/agent']),
    ...['--ro-bind', spec.runDir, '/run/berth'],
    ...spec.binds.flatMap(({ hostPath, path }) => ['--ro-bind', hostPath, path]),
    ...['--remount-ro', '/', '--chdir', volumeDir === null ? '/' : '/workspace'],
    ...['--seccomp', String(fds.seccomp), '--info-fd', String(fds.info), '--block-fd', String(fds.block)],
  ];
  return Buffer.from(`${args.join('\0')}\0`);
}

export function refuseBadSpec(spec: SandboxSpec | BlankSpec): void {
  let totalBytes = 0;
  for (const [name, value] of Object.entries(spec.env)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
      throw new Error(`"${name}" cannot be the name of a variable.`);
    if (value.includes('\0'))
      throw new Error(`The variable ${name} holds a NUL byte, which no environment can.`);
    const bytes = Buffer.byteLength(name) + Buffer.byteLength(value) + 2;
    if (bytes > ENTRY_MAX_BYTES)
      throw new Error(`The variable ${name} is longer than ${ENTRY_MAX_BYTES} bytes.`);
    totalBytes += bytes;
  }
  if (totalBytes > ENVIRONMENT_MAX_BYTES) {
    throw new Error(
      `The environment has ${totalBytes} bytes; a program can be given ${ENVIRONMENT_MAX_BYTES}.`,
    );
  }
  const volumes = 'volumeDir' in spec ? [spec.volumeDir] : [];
  const paths = [...volumes, spec.runDir, ...spec.binds.flatMap((bind) => [bind.hostPath, bind.path])];
  for (const path of paths) {
    if (!path.startsWith('/') || path.includes('\0')) throw new Error(`"${path}" is not an absolute path.`);
  }
  if (spec.command.some((word) => word.includes('\0'))) throw new Error('A command holds a NUL byte.');
  if (spec.command.length === 0) throw new Error('A sandbox needs a command.');
}
