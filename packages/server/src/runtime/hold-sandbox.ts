import type { Hold, Keeper } from './keeper.ts';
import { SandboxStartError } from './sandbox-start.ts';
import { StartSuperseded } from './starts.ts';
import type { Turn } from './turn.ts';

const START_TRIES = 3;
const RETRY_DELAY_MS = 200;
/** Between two tries to start a sandbox while the disk of the service is full. */
const ROOM_DELAY_MS = 2_000;

/** Null: it could not be had, and the run is settled. */
export async function holdSandbox(
  deps: { keeper: Keeper; roomDelayMs?: number },
  turn: Turn,
  wish: Parameters<Keeper['hold']>[0],
): Promise<Hold | null> {
  for (let tries = 1; ;) {
    try {
      return await deps.keeper.hold(wish, turn.claim.conversationId, turn.signal);
    } catch (error) {
      if (turn.signal.aborted || !(error instanceof SandboxStartError)) throw error;
      if (error.isHostFull) {
        // It was accepted, so it waits for room, as long as it may.
        await delay(deps.roomDelayMs ?? ROOM_DELAY_MS, turn.signal);
        continue;
      }
      if (error instanceof StartSuperseded) {
        // Its run has its deployment, and one more try behind whoever waits for the newer one.
        wish = { ...wish, hasGivenWay: true };
        tries = START_TRIES;
        await delay(RETRY_DELAY_MS, turn.signal);
        continue;
      }
      if (tries === START_TRIES) {
        await turn.settle('failed', { code: 'sandbox_unavailable', error: error.message });
        return null;
      }
      await delay(RETRY_DELAY_MS * 2 ** tries, turn.signal);
      tries += 1;
    }
  }
}

function delay(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done, { once: true });
  });
}
