import type { Log } from '../../domain/log.ts';
import { lookAt, type ContainerDetails } from './details.ts';
import { EngineError, type Engine } from './engine.ts';

/** An engine that is started anew is back by then. */
const BACK_TIMEOUT_MS = 10_000;
/** Nobody has heard the request. */
const UNHEARD = ['ECONNREFUSED', 'ENOENT', 'EACCES'];

/** Neither the answer to a start nor the container itself told whether it was done. */
export class UnknownStart extends Error {}

/**
 * Starts a container, and tells of it as it is then. Throws when its program was not started. An error is not enough to
 * say so: the answer may have been lost, or the engine have failed at something after it. A program that ran and is told as
 * not started would be started again, so the container itself is asked. Null: it was started, and that is all that is known.
 */
export async function startContainer(
  engine: Engine,
  name: string,
  log: Log,
  backMs = BACK_TIMEOUT_MS,
): Promise<ContainerDetails | null> {
  try {
    await engine.call('POST', `/containers/${name}/start`);
  } catch (error) {
    if (UNHEARD.includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    return startedAllTheSame(engine, name, log, backMs, error);
  }
  // Whatever comes of the look: it runs, or has run.
  return lookAt(engine, name, backMs, () => true).catch((error: unknown) => {
    log.warn('The engine does not tell of a container that it has started.', { name, error: String(error) });
    return null;
  });
}

async function startedAllTheSame(
  engine: Engine,
  name: string,
  log: Log,
  backMs: number,
  error: unknown,
): Promise<ContainerDetails> {
  const why = error instanceof Error ? error.message : String(error);
  let details: ContainerDetails | null;
  try {
    // Engines hold back the answer while the container is being started.
    details = await lookAt(engine, name, backMs, () => true);
  } catch {
    throw new UnknownStart(why, { cause: error });
  }
  // Podman notes the time last of all: what has a process and no time may have been let go.
  if (details && !details.hasStarted && details.pid > 0) throw new UnknownStart(why, { cause: error });
  if (!details?.hasStarted) throw error;
  const status = error instanceof EngineError ? error.status : null;
  log.warn('The engine told an error of a start that it had done.', { name, status, error: why });
  return details;
}
