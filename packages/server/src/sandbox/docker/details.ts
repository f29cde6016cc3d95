import { setTimeout as delay } from 'node:timers/promises';
import { EngineError, type Engine } from './engine.ts';

const GONE_TIMEOUT_MS = 15_000;
/** An engine that cannot tell of a container for longer than that has another reason than its end. */
const TOLD_TIMEOUT_MS = 2_000;
/** What is said of the time of a start that never was. */
const NEVER = '0001-01-01T00:00:00Z';

/** What the driver reads of `GET /containers/{id}/json`. */
export interface ContainerDetails {
  running: boolean;
  /** Whether its program was ever started, also when it has ended since. */
  hasStarted: boolean;
  paused: boolean;
  pid: number;
  exitCode: number;
  oomKilled: boolean;
  labels: Record<string, string>;
}

/** Null when there is no such container. */
export function inspect(engine: Engine, name: string): Promise<ContainerDetails | null> {
  return lookAt(engine, name, TOLD_TIMEOUT_MS, isOfTheEngine);
}

/**
 * Podman 4.3 fails with 500 ("read /proc/1234/cgroup: no such process") when the program ends while it looks, and
 * tells of its end a moment later. What `isPassing` says of an error is asked again, for so long.
 */
export async function lookAt(
  engine: Engine,
  name: string,
  timeoutMs: number,
  isPassing: (error: unknown) => boolean,
): Promise<ContainerDetails | null> {
  const found = await again(timeoutMs, isPassing, () => engine.call('GET', `/containers/${name}/json`));
  return found === null ? null : detailsOf(found);
}

/** Asks again, for so long, after errors that pass. Null when there is no such container. */
async function again(
  timeoutMs: number,
  isPassing: (error: unknown) => boolean,
  ask: () => Promise<unknown>,
): Promise<unknown> {
  const deadline = performance.now() + timeoutMs;
  for (let waitMs = 10; ; waitMs = Math.min(waitMs * 2, 500)) {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof EngineError && error.status === 404) return null;
      if (!isPassing(error) || performance.now() > deadline) throw error;
    }
    await delay(waitMs);
  }
}

const isOfTheEngine = (error: unknown): boolean => error instanceof EngineError && error.status >= 500;

function detailsOf(found: unknown): ContainerDetails {
  const { State: state, Config: config } = found as {
    State: {
      Status?: string;
      Running: boolean;
      Paused: boolean;
      Pid: number;
      ExitCode: number;
      OOMKilled: boolean;
      StartedAt?: string;
    };
    Config: { Labels: Record<string, string> | null };
  };
  return {
    // Podman does not call running what it has only asked to end.
    running: state.Running || state.Paused || state.Status === 'stopping',
    hasStarted: (state.StartedAt ?? NEVER) !== NEVER,
    paused: state.Paused,
    pid: state.Pid,
    exitCode: state.ExitCode,
    oomKilled: state.OOMKilled,
    labels: config.Labels ?? {},
  };
}

/** Resolves once it is gone, whoever removes it. Idempotent. */
export async function removeContainer(engine: Engine, name: string): Promise<void> {
  // 409: it is being removed already. Others may pass too, such as a folder that is busy for a moment.
  const isPassing = (error: unknown) => error instanceof EngineError;
  await again(GONE_TIMEOUT_MS, isPassing, () => engine.call('DELETE', `/containers/${name}?force=1&v=1`));
}

/**
 * Podman takes the name of a runtime without a word and may not use it. What it did is asked by its own API (libpod), so
 * that no container runs with less isolation than was asked for.
 */
export async function refuseOtherRuntime(engine: Engine, name: string, wanted: string): Promise<void> {
  const found = (await engine.call('GET', `/v4.0.0/libpod/containers/${name}/json`)) as {
    OCIRuntime?: string;
  };
  if (found.OCIRuntime === wanted) return;
  throw new Error(
    `Podman uses the runtime ${found.OCIRuntime ?? '(unknown)'} and not ${wanted}: it does not take the name by this API. ` +
      `Start its service with: podman --runtime ${wanted} system service --time=0 unix://…`,
  );
}
