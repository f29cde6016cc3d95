import { join } from 'node:path';
import type { AdoptedHarness } from '../domain/ports/harness.ts';
import type { LiveSandboxRow } from '../services/sandbox-records.ts';
import { cleaner, openSockets, type StartDependencies, type StartedSandbox } from './sandbox-start.ts';

/** Launchers dial several times a second; one that does not come back is not worth a longer start. */
const COME_BACK_MS = 5_000;

export interface AdoptedSandbox extends StartedSandbox {
  row: LiveSandboxRow;
  harness: AdoptedHarness;
}

/** Takes up the sandboxes of an earlier process of this node, and ends those that cannot be. */
export async function adoptSandboxes(deps: StartDependencies): Promise<AdoptedSandbox[]> {
  const { driver, records, nodeId, log } = deps;
  const [found, rows] = await Promise.all([driver.list(), records.live(nodeId)]);
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  const adopted = await Promise.all(
    found.map(async (id) => {
      const row = rowOf.get(id);
      const sandbox = row && !row.isAbandoned ? await adoptSandbox(deps, row) : null;
      if (sandbox) return sandbox;
      // One that cannot be ended keeps the service from nothing: the reconciler counts it as leaked, and tries it again.
      await driver.remove(id).catch((error: unknown) =>
        log.error('A sandbox of an earlier process could not be ended.', {
          sandboxId: id,
          error: String(error),
        }),
      );
      return null;
    }),
  );
  return adopted.filter((sandbox) => sandbox !== null);
}

/** Takes up a sandbox of an earlier process of this node. Null: it cannot be, and nothing of it is left. */
export async function adoptSandbox(
  deps: StartDependencies,
  row: LiveSandboxRow,
): Promise<AdoptedSandbox | null> {
  const { id, orgId, agentId, model, tokenHash } = row;
  const runDir = join(deps.paths.run, id);
  const log = deps.log.child({ sandboxId: id, agentId });
  const sandbox = await deps.driver.adopt(id).catch((error: unknown) => {
    log.warn('A sandbox could not be taken up.', { error: String(error) });
    return null;
  });
  if (!sandbox) return null;
  let close = (): void => undefined;
  try {
    const secretKeys = await deps.secrets.modelKeys(agentId);
    const caller = { orgId, agentId, sandboxId: id, model, tokenHash, secretKeys };
    const sockets = await openSockets(deps, runDir, caller);
    close = sockets.close;
    // A frozen launcher does not dial. Where nothing freezes, as mostly without root, thawing is refused.
    if (sandbox.isFrozen) await sandbox.thaw();
    const harness = await sockets.link.adopt(sandbox, { timeoutMs: COME_BACK_MS });
    const { connection } = harness;
    const cleanUp = cleaner(deps, id, close);
    log.info('A sandbox was taken up again.', { turns: harness.unfinished.length });
    return { id, sandbox, link: sockets.link, connection, leave: close, cleanUp, row, harness };
  } catch (error) {
    log.warn('A sandbox could not be taken up.', { error: String(error) });
    close();
    await sandbox.kill().catch(() => undefined);
    return null;
  }
}
