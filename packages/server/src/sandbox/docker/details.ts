import type { Engine } from './engine.ts';

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

/** Idempotent: one that is gone, or being removed by somebody else, is no error. */
export async function removeContainer(engine: Engine, name: string): Promise<void> {
  await engine.call('DELETE', `/containers/${name}?force=1&v=1`).catch((error: { status?: number }) => {
    if (error.status !== 404 && error.status !== 409) throw error;
  });
}

function ignoreMissing(error: { status?: number }): null {
  if (error.status === 404) return null;
  throw error;
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
