import { join } from 'node:path';
import type { Cancel } from '../services/cancel.ts';
import type { KeeperOptions, Keeper } from './keeper.ts';
import type { Turn } from './turn.ts';

const REASON = 'Its agent was deleted.';
const LOOK_MS = 20;
const PATIENCE_MS = 20_000;

/** Ends everything of a deleted agent that is on this host. Idempotent; rejects when it could not be done. */
export async function removeAgent(
  deps: Pick<KeeperOptions, 'driver' | 'paths'> & { cancel: Cancel },
  state: { keeper: Keeper; turns: ReadonlyMap<string, Turn> },
  agentId: string,
): Promise<void> {
  await deps.cancel.allOf({ agentId });
  const mine = () => [...state.turns.values()].filter((turn) => turn.claim.agentId === agentId);
  for (const turn of mine()) turn.stop('cancel');
  const endMs = performance.now() + PATIENCE_MS;
  while (mine().length > 0) {
    if (performance.now() > endMs) throw new Error('The turns of a deleted agent did not end.');
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  await state.keeper.endAgent(agentId, REASON);
  await deps.driver.removeVolume(join(deps.paths.volumes, agentId));
}
