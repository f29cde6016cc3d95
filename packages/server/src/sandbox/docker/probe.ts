import { existsSync } from 'node:fs';
import type {
  Isolation,
  LimitGrade,
  SandboxCapabilities,
  SandboxDriver,
} from '../../domain/ports/sandbox.ts';
import { runTrial } from '../trial.ts';
import { currentBootId } from '../record.ts';
import type { Engine } from './engine.ts';
import { KERNEL_SCRIPT, provenIsolation } from './isolation.ts';

interface Info {
  MemoryLimit?: boolean;
  CpuCfsQuota?: boolean;
  PidsLimit?: boolean;
  SecurityOptions?: string[] | null;
  Runtimes?: Record<string, unknown>;
  DefaultRuntime?: string;
}

interface Request {
  driver: SandboxDriver;
  engine: Engine;
  socket: string;
  runtime: string | null;
  image: string;
  isRoot: boolean;
}

const TRIAL = { memoryBytes: 256 * 1024 * 1024, pids: 512 };

/** Asks the engine, and starts a real container. Never throws. */
export async function dockerCapabilities(request: Request): Promise<SandboxCapabilities> {
  const { info, problems } = await askEngine(request);
  let isolation: Isolation = 'none';
  if (problems.length === 0) {
    try {
      isolation = await request.driver.isolation();
    } catch (error) {
      problems.push(...explain(error instanceof Error ? error.message : String(error), request));
    }
  }
  const grade = (has: boolean | undefined): LimitGrade => (has ? 'hard' : 'none');
  return {
    driver: 'docker',
    isolation,
    usable: problems.length === 0,
    problems,
    limits: {
      memory: grade(info.MemoryLimit),
      cpu: grade(info.CpuCfsQuota),
      pids: grade(info.PidsLimit),
      disk: 'watched',
      openFiles: 'per-process',
      output: 'watched',
    },
    accounting: info.MemoryLimit === true,
    freeze: true,
    detached: true,
    ownUser: request.isRoot,
    transparentEgress: false,
    warmPool: false,
    notes: [
      `Runtime ${request.runtime ?? info.DefaultRuntime ?? '(unknown)'}; a trial container found the isolation "${isolation}".`,
      'The environment of a container, secrets among it, can be read by whoever may ask the engine.',
      request.isRoot
        ? 'Each agent runs under a host user of its own.'
        : 'All agents run under the user of the service; as root each gets its own.',
    ],
  };
}

/** Rejects with the reason when no container starts. */
export async function proveIsolation(
  driver: SandboxDriver,
  areaDir: string,
  isRoot: boolean,
): Promise<Isolation> {
  const command = ['/bin/sh', '-c', KERNEL_SCRIPT];
  const said = await runTrial({ driver, areaDir, isRoot, command, limits: TRIAL });
  return provenIsolation(said, currentBootId());
}

async function askEngine(request: Request): Promise<{ info: Info; problems: string[] }> {
  const { socket, engine, image, runtime } = request;
  if (!existsSync(socket))
    return {
      info: {},
      problems: [
        `There is no socket ${socket}. Start Docker, or Podman with: podman system service --time=0 unix://${socket}; or set BERTH_DOCKER_SOCKET.`,
      ],
    };
  try {
    const info = (await engine.call('GET', '/info')) as Info;
    const problems: string[] = [];
    if ((info.SecurityOptions ?? []).some((option) => option.includes('rootless')))
      problems.push(
        'This engine runs without root rights, which this driver does not support: bubblewrap needs none (BERTH_SANDBOX=bubblewrap).',
      );
    const runtimes = Object.keys(info.Runtimes ?? {});
    if (runtime !== null && runtimes.length > 0 && !runtimes.includes(runtime))
      problems.push(
        `The engine knows no runtime "${runtime}", only ${runtimes.join(', ')}. Add it to /etc/docker/daemon.json ("runtimes") or containers.conf ([engine.runtimes]), or set BERTH_DOCKER_RUNTIME.`,
      );
    const found = await engine.call('GET', `/images/${encodeURIComponent(image)}/json`).catch(() => null);
    if (!found)
      problems.push(
        `The engine has no image "${image}", and nothing is pulled by itself: docker pull ${image}, or set BERTH_DOCKER_IMAGE.`,
      );
    return { info, problems };
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return {
      info: {},
      problems: [
        `The engine at ${socket} does not answer: ${why}. The user of the service must be able to write to the socket (on Docker: be in the group docker).`,
      ],
    };
  }
}

function explain(said: string, { runtime }: Request): string[] {
  const lines = [`A trial container did not start: ${said.slice(0, 500)}`];
  if (said.includes('/tmp/probe'))
    lines.push('Give /tmp in the image the mode 1777; runtimes take over what the image has there.');
  if (/init|catatonit|tini/i.test(said))
    lines.push(
      'The engine lacks its init: apt-get install -y tini (Docker) or catatonit (Podman), and restart the engine.',
    );
  if (/rlimit|RLIMIT/.test(said))
    lines.push('The engine may not raise limits: start it with a higher limit of open files and processes.');
  if (/cgroup/i.test(said))
    lines.push(
      'The engine cannot make cgroups: on mixed layouts set cgroup_manager="cgroupfs" and runtime="runc" (containers.conf).',
    );
  if (runtime !== null)
    lines.push(`The runtime "${runtime}" may be what fails; try without BERTH_DOCKER_RUNTIME.`);
  return lines;
}
