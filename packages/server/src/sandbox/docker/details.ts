import { setTimeout as delay } from 'node:timers/promises';
import { EngineError, type Engine } from './engine.ts';

const GONE_TIMEOUT_MS = 15_000;

/** What the driver reads of `GET /containers/{id}/json`. */
export interface ContainerDetails {
  running: boolean;
  paused: boolean;
  pid: number;
  exitCode: number;
  oomKilled: boolean;
  labels: Record<string, string>;
}

/** Null when there is no such container. */
export async function inspect(engine: Engine, name: string): Promise<ContainerDetails | null> {
  const found = await engine.call('GET', `/containers/${name}/json`).catch(ignoreMissing);
  if (!found) return null;
  const { State: state, Config: config } = found as {
    State: { Running: boolean; Paused: boolean; Pid: number; ExitCode: number; OOMKilled: boolean };
    Config: { Labels: Record<string, string> | null };
  };
  return {
    running: state.Running || state.Paused,
    paused: state.Paused,
    pid: state.Pid,
    exitCode: state.ExitCode,
    oomKilled: state.OOMKilled,
    labels: config.Labels ?? {},
  };
}

/** Resolves once it is gone, whoever removes it. Idempotent. */
export async function removeContainer(engine: Engine, name: string): Promise<void> {
  const deadline = performance.now() + GONE_TIMEOUT_MS;
  for (let waitMs = 20; ; waitMs = Math.min(waitMs * 2, 500)) {
    try {
      await engine.call('DELETE', `/containers/${name}?force=1&v=1`);
      return;
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      if (error.status === 404) return;
      // 409: it is being removed already. Others may pass too, such as a folder that is busy for a moment.
      if (performance.now() > deadline) throw error;
    }
    await delay(waitMs);
  }
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

function ignoreMissing(error: { status?: number }): null {
  if (error.status === 404) return null;
  throw error;
}
