import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import {
  accessSync,
  chmodSync,
  constants,
  createReadStream,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from '../support/until.ts';
import { rootfs } from './rootfs.ts';

export const IMAGE = 'berth-test:1';
export type EngineName = 'docker' | 'podman';

/** A container engine of this test alone, with a folder, a socket and storage of its own. */
export interface TestEngine {
  socket: string;
  /** Of the service itself. */
  pid: number;
  close(): Promise<void>;
}

const programs: Record<EngineName, string[]> = {
  docker: ['dockerd', 'containerd', 'runc', 'docker-init'],
  podman: ['podman', 'conmon', 'runc', 'catatonit'],
};
const folders = ['/usr/sbin', '/usr/bin', '/usr/local/bin', '/sbin', '/bin', '/usr/libexec/podman'];

/** Why an engine cannot be started here; false when it can. */
export function engineMissing(name: EngineName): string | false {
  if (process.getuid?.() !== 0) return `only root can start ${name} here`;
  const missing = programs[name].filter((program) => pathOf(program) === null);
  return (
    missing.length > 0 && `${missing.join(', ')} is not installed (scripts/setup.mjs --test installs it)`
  );
}

export function runscMissing(): string | false {
  return pathOf('runsc') === null && 'runsc is not installed (scripts/setup.mjs --test installs it)';
}

/** Starts it and loads the image. The runtime `runsc` is there under that name, with what it needs on any machine. */
export async function startEngine(name: EngineName): Promise<TestEngine> {
  const folder = mkdtempSync(join(tmpdir(), `berth-${name}-`));
  chmodSync(folder, 0o711);
  const socket = join(folder, 'engine.sock');
  const runsc = join(folder, 'runsc');
  // No virtualisation and no new kernel interface is asked for; the sockets of the host can be connected to.
  const flags = '--platform=ptrace --network=none --fsgofer-host-uds';
  writeFileSync(runsc, `#!/bin/sh\nexec ${pathOf('runsc') ?? 'runsc'} ${flags} "$@"\n`, { mode: 0o755 });
  const child = name === 'docker' ? startDocker(folder, socket, runsc) : startPodman(folder, socket, runsc);
  const said: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => said.push(chunk));
  const close = async (): Promise<void> => {
    child.kill('SIGTERM');
    if (child.exitCode === null && child.signalCode === null)
      await new Promise((resolve) => child.once('exit', resolve));
    // Helpers of an engine may still be taking away the last container.
    let why: unknown;
    const isGone = (): boolean => {
      unmountBelow(folder);
      try {
        rmSync(folder, { recursive: true, force: true });
        return true;
      } catch (error) {
        why = error;
        return false;
      }
    };
    await until(`the folder of ${name} is gone`, isGone).catch((error: unknown) => {
      throw new Error(String(error), { cause: why });
    });
  };
  try {
    await until(`${name} answers`, async () => {
      if (child.exitCode !== null)
        throw new Error(`${name} ended at once: ${Buffer.concat(said).toString()}`);
      return (await ask(socket, 'GET', '/v1.41/version').catch(() => 0)) === 200;
    });
    const query = 'fromSrc=-&repo=docker.io/library/berth-test';
    await ask(socket, 'POST', `/v1.41/images/create?${query}`, rootfs(tmpdir()));
    // Podman takes no tag while importing.
    const from = 'docker.io/library/berth-test:latest';
    await ask(socket, 'POST', `/v1.41/images/${from}/tag?repo=docker.io/library/berth-test&tag=1`);
    return { socket, pid: child.pid ?? 0, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function startDocker(folder: string, socket: string, runsc: string): ChildProcess {
  const config = join(folder, 'daemon.json');
  writeFileSync(config, JSON.stringify({ runtimes: { runsc: { path: runsc } } }));
  const args = [
    ...['--config-file', config, '--host', `unix://${socket}`, '--pidfile', join(folder, 'pid')],
    ...['--data-root', join(folder, 'data'), '--exec-root', join(folder, 'exec')],
    // Nothing of the host's network is touched.
    ...['--iptables=false', '--ip6tables=false', '--ip-forward=false', '--bridge=none'],
    ...['--storage-driver', 'overlay2'],
  ];
  return spawn(pathOf('dockerd') ?? 'dockerd', args, {
    cwd: folder,
    env: { PATH: folders.join(':') },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

function startPodman(folder: string, socket: string, runsc: string): ChildProcess {
  const [engine, storage] = [join(folder, 'containers.conf'), join(folder, 'storage.conf')];
  const runtimes = `[engine.runtimes]\nrunc = ["${pathOf('runc')}"]\nrunsc = ["${runsc}"]\n`;
  writeFileSync(
    engine,
    `[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\nevents_logger = "file"\n${runtimes}`,
  );
  const [graph, run] = [join(folder, 'graph'), join(folder, 'run')];
  writeFileSync(storage, `[storage]\ndriver = "overlay"\ngraphroot = "${graph}"\nrunroot = "${run}"\n`);
  return spawn(pathOf('podman') ?? 'podman', ['system', 'service', '--time=0', `unix://${socket}`], {
    cwd: folder,
    env: { PATH: folders.join(':'), CONTAINERS_CONF: engine, CONTAINERS_STORAGE_CONF: storage, HOME: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** Resolves with the status once the answer has ended. */
function ask(socketPath: string, method: string, path: string, bodyFile?: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = bodyFile === undefined ? {} : { 'Content-Type': 'application/x-tar' };
    const outgoing = request({ socketPath, method, path, headers, agent: false }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode ?? 0));
    });
    outgoing.on('error', reject);
    if (bodyFile === undefined) outgoing.end();
    else createReadStream(bodyFile).pipe(outgoing);
  });
}

function unmountBelow(folder: string): void {
  const mounts = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((path) => path.startsWith(`${folder}/`))
    .toSorted((a, b) => b.length - a.length);
  for (const path of mounts) spawnSync('umount', ['--lazy', path]);
}

export function pathOf(program: string): string | null {
  const found = folders.find((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  return found === undefined ? null : join(found, program);
}
