import { DomainError } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { limitEndOf } from '../domain/limit-end.ts';
import {
  SandboxControlError,
  type SandboxEnd,
  type SandboxProcess,
} from '../domain/ports/sandbox-control.ts';
import { within } from '../domain/time-limit.ts';
import type { HostedSandbox, SandboxHost } from '../services/sandbox-host.ts';
import type { KeptSandbox } from './kept-sandbox.ts';
import type { Keeper } from './keeper.ts';
import type { RunnerDependencies } from './runner.ts';
import { SandboxStartError, type StartDependencies } from './sandbox-start.ts';
import { StartEnded, StartSuperseded } from './starts.ts';

export interface SandboxHostDependencies {
  keeper: Keeper;
  waitForActive: RunnerDependencies['waitForActive'];
  records: Pick<StartDependencies['records'], 'target'>;
  /** Whether sandboxes of this driver can be frozen on this machine. */
  canFreeze: boolean;
  /** For tests: until when a start is waited for. */
  hostPatience?: () => AbortSignal;
}

const START_MS = 60_000;
const STOP_MS = 600_000;
const LOOK_MS = 50;
const REPLACED_GRACE_MS = 2_000;
const ENDING_MS = 1_000;
/** For the end of a sandbox whose channel has ended. */
const SEEN_MS = 5_000;
/** Holds a sandbox as a turn does; no conversation has this id. */
const NOBODY = '00000000-0000-0000-0000-000000000000';

/** What the surface may ask of the keeper. */
export function createSandboxHost(deps: SandboxHostDependencies): SandboxHost {
  const { keeper, hostPatience = () => AbortSignal.timeout(START_MS) } = deps;
  // Logs are in the memory of this process: a number that an earlier one gave may be that of quite another line here.
  const logEpoch = newId();

  async function state(agentId: string): Promise<HostedSandbox> {
    const kept = keeper.ofAgent(agentId);
    if (!kept) {
      const isStarting = keeper.isBusyWith(agentId);
      return { ...none, agentId, state: isStarting ? 'starting' : 'stopped' };
    }
    return {
      agentId,
      state: kept.canTakeTurns ? (kept.isFrozen ? 'frozen' : 'running') : 'stopping',
      sandboxId: kept.id,
      since: kept.startedAt,
      runningTurns: kept.turns.size,
      stats: await kept.stats(),
      reason: kept.endedBy,
    };
  }

  async function start(agentId: string): Promise<HostedSandbox> {
    await started(agentId);
    return state(agentId);
  }

  async function started(agentId: string, signal = hostPatience()): Promise<KeptSandbox> {
    let isDeployed = false;
    let inVain: DomainError | null = null;
    // Looked at before whatever else ends for the same reason.
    const onTimeout = (): void => void (inVain = waitedInVain(agentId, isDeployed));
    signal.addEventListener('abort', onTimeout, { once: true });
    try {
      const [target, deployment] = await Promise.all([
        deps.records.target(agentId),
        deps.waitForActive(agentId, signal),
      ]);
      if (!target || !deployment)
        throw new DomainError(
          'conflict',
          'The agent has no deployment that is ready; push to its repository or look at its deployments.',
        );
      isDeployed = true;
      const hold = await keeper.hold({ ...target, agentId, deployment }, NOBODY, signal);
      hold.release();
      return hold.kept;
    } catch (error) {
      if (error instanceof StartSuperseded && !signal.aborted) return started(agentId, signal);
      if (keeper.isClosed) throw stopping(error);
      // Somebody wanted its end: nothing is wrong with the service.
      if (error instanceof StartEnded) throw new DomainError('conflict', error.message, { cause: error });
      if (error instanceof SandboxStartError)
        throw new DomainError('unavailable', error.message, { cause: error });
      throw inVain ?? error;
    } finally {
      signal.removeEventListener('abort', onTimeout);
    }
  }

  /** What the time was not enough for. */
  function waitedInVain(agentId: string, isDeployed: boolean): DomainError {
    const seconds = START_MS / 1000;
    const again = { retryAfterSeconds: 5 };
    if (!isDeployed)
      return new DomainError('conflict', `The deployment of the agent was not ready within ${seconds} s.`);
    if (keeper.isStarting(agentId))
      return new DomainError('unavailable', `The sandbox did not start within ${seconds} s.`, again);
    if (keeper.ofAgent(agentId))
      return new DomainError(
        'conflict',
        'A turn of an earlier deployment or of earlier settings is still under way in the sandbox.',
      );
    return new DomainError(
      'too_many_sandboxes',
      `All ${keeper.most} sandboxes that the service may have at once are busy; try again later.`,
      again,
    );
  }

  /** In the sandbox given, or once more in the next one, when it had ended and only nobody had seen it yet. */
  async function inLiving<T>(kept: KeptSandbox, work: (living: KeptSandbox) => Promise<T>): Promise<T> {
    try {
      await kept.use();
      return await work(kept);
    } catch (error) {
      if (!(error instanceof SandboxControlError && error.isUntold)) throw error;
      // Its channel ends before its processes do. One that lives on may have dialled again meanwhile.
      await within(SEEN_MS, kept.gone, () => null).catch(() => null);
      const next = await started(kept.agentId);
      await next.use();
      return work(next);
    }
  }

  async function stop(agentId: string): Promise<HostedSandbox> {
    const endMs = performance.now() + STOP_MS;
    while (!(await keeper.stopAgent(agentId, 'It was stopped.'))) {
      if (performance.now() > endMs)
        throw new DomainError('conflict', 'A turn is still under way in it; kill it instead.');
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    return state(agentId);
  }

  return {
    state,
    start,
    stop,
    async restart(agentId) {
      await stop(agentId);
      return start(agentId);
    },
    async kill(agentId) {
      await keeper.endAgent(agentId, 'It was killed.');
      return state(agentId);
    },
    async control(agentId) {
      const kept = await started(agentId);
      return {
        exec: (command) =>
          inLiving(kept, async (living) => withReason(living, await living.link.control.exec(command))),
        connect: (target) => inLiving(kept, ({ link }) => link.control.connect(target)),
      };
    },
    quiesce: (agentId, how, work) =>
      keeper.inTurn(agentId, async () => {
        const kept = keeper.ofAgent(agentId);
        if (!kept) return work();
        if (!kept.canTakeTurns) await kept.gone;
        else if (how === 'frozen' && deps.canFreeze) return frozen(kept, work);
        else if (kept.turns.size > 0)
          throw new DomainError(
            'conflict',
            'A turn is under way in the sandbox; wait for it, or cancel its run.',
          );
        else
          await kept.stop(
            how === 'frozen' ? 'Its files were saved.' : 'Its files were replaced.',
            REPLACED_GRACE_MS,
          );
        return work();
      }),
    async *logs(agentId, { after, follow, signal }) {
      const found = keeper.logOf(agentId);
      if (!found) return;
      const { sandboxId, log } = found;
      let number = after?.sandboxId === sandboxId && after.epoch === logEpoch ? after.number : 0;
      for (;;) {
        for (const line of log.after(number)) {
          number = line.number;
          yield { sandboxId, epoch: logEpoch, ...line };
        }
        if (!follow || signal.aborted || log.isClosed) return;
        await log.changed(signal);
      }
    },
  };
}

/** Its end says why the sandbox ended, where it ended with that. */
function withReason(kept: KeptSandbox, process: SandboxProcess): SandboxProcess {
  const { stdin, stdout, stderr } = process;
  const exited = process.exited.then(async (exit) => {
    if (exit.code !== null || exit.signal !== null) return exit;
    // An engine that cannot say how it ended keeps nobody from learning that the command has.
    const sandboxEnd = await endOf(kept).catch(() => null);
    return sandboxEnd ? { ...exit, sandboxEnd } : exit;
  });
  return {
    ...{ stdin, stdout, stderr, exited },
    resize: (columns, rows) => process.resize(columns, rows),
    kill: (signal) => process.kill(signal),
  };
}

/** Null when it has not ended: only its channel has, as when it goes on without this process. */
async function endOf(kept: KeptSandbox): Promise<SandboxEnd | null> {
  const exit = await within(SEEN_MS, Promise.race([kept.exited, kept.left]), () => null);
  if (exit === null) return null;
  return (
    limitEndOf(exit) ?? { code: 'sandbox_ended', error: kept.endedBy ?? 'The sandbox has ended by itself.' }
  );
}

/** Runs on afterwards, unless it was frozen before. */
async function frozen<T>(kept: KeptSandbox, work: () => Promise<T>): Promise<T> {
  const wasFrozen = kept.isFrozen;
  await kept.freeze().catch(async (error: unknown) => {
    // One that ends at this moment cannot be frozen, and need not be.
    if (!(await within(ENDING_MS, hasEnded(kept), () => false))) throw error;
    await kept.gone;
  });
  try {
    const result = await work();
    if (kept.isFrozen || kept.isGone) return result;
    throw new DomainError('conflict', 'The sandbox was used meanwhile; try again.');
  } finally {
    if (!wasFrozen && kept.canTakeTurns) await kept.use();
  }
}

const hasEnded = (kept: KeptSandbox): Promise<boolean> => kept.exited.then(() => true);

function stopping(cause: unknown): DomainError {
  const again = { retryAfterSeconds: 5, cause };
  return new DomainError('unavailable', 'The service is stopping; try again when it runs.', again);
}

const none = { sandboxId: null, since: null, runningTurns: 0, stats: null, reason: null };
