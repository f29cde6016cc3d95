import { join } from 'node:path';
import type { AdoptedHarness, SandboxLogLines } from '../domain/ports/harness.ts';
import type { LiveSandboxRow } from '../services/sandbox-records.ts';
import {
  cleaner,
  cleanUpFailed,
  INITIALIZE_MS,
  openSockets,
  type StartDependencies,
  type StartedSandbox,
} from './sandbox-start.ts';

/** Launchers dial several times a second; one that does not come back is not worth a longer start. */
const COME_BACK_MS = 5_000;

export interface AdoptedSandbox extends StartedSandbox {
  row: LiveSandboxRow;
  harness: AdoptedHarness;
}

/** A sandbox of which an earlier process of this node has not learned that its harness had answered. */
export interface BegunStart {
  row: LiveSandboxRow;
  log: SandboxLogLines;
  /** Waits for the harness as a start does, or rejects and leaves nothing of the sandbox. */
  finish(given: AbortSignal): Promise<StartedSandbox>;
}

/** What an earlier process of this node left and can be gone on with. What cannot be is ended. */
export interface TakenUp {
  adopted: AdoptedSandbox[];
  begun: BegunStart[];
}

export async function takeUpSandboxes(deps: StartDependencies): Promise<TakenUp> {
  const { driver, records, nodeId, log } = deps;
  const [found, rows] = await Promise.all([driver.list(), records.live(nodeId)]);
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  const taken: TakenUp = { adopted: [], begun: [] };
  await Promise.all(
    found.map(async (id) => {
      const row = rowOf.get(id);
      if (row && !row.isAbandoned && (await takeUp(deps, row, taken))) return;
      // One that cannot be ended keeps the service from nothing: the reconciler counts it as leaked, and tries it again.
      await driver.remove(id).catch((error: unknown) =>
        log.error('A sandbox of an earlier process could not be ended.', {
          sandboxId: id,
          error: String(error),
        }),
      );
    }),
  );
  return taken;
}

/** False: it cannot be taken up. */
async function takeUp(deps: StartDependencies, row: LiveSandboxRow, taken: TakenUp): Promise<boolean> {
  // A start that is not over yet is gone on with later: nothing waits for a harness that may take a minute to answer.
  const begun = row.isStarting ? await openBegun(deps, row) : null;
  const adopted = row.isStarting ? null : await adoptSandbox(deps, row);
  if (begun) taken.begun.push(begun);
  if (adopted) taken.adopted.push(adopted);
  return begun !== null || adopted !== null;
}

/** Takes up a sandbox of an earlier process of this node. Null: it cannot be, and nothing of it is left. */
export function adoptSandbox(deps: StartDependencies, row: LiveSandboxRow): Promise<AdoptedSandbox | null> {
  return withSockets(deps, row, async ({ id, sandbox, link, leave, cleanUp }) => {
    const harness = await link.adopt(sandbox, { timeoutMs: COME_BACK_MS });
    deps.log.info('A sandbox was taken up again.', {
      sandboxId: id,
      agentId: row.agentId,
      turns: harness.unfinished.length,
    });
    return { id, sandbox, link, connection: harness.connection, leave, cleanUp, row, harness };
  });
}

/** The same of one whose start is not over. */
export function openBegun(deps: StartDependencies, row: LiveSandboxRow): Promise<BegunStart | null> {
  return withSockets(deps, row, async (opened) => ({
    row,
    log: opened.link.log,
    finish: (given) => finishStart(deps, row, opened, given),
  }));
}

async function finishStart(
  { records, log }: StartDependencies,
  row: LiveSandboxRow,
  opened: Opened,
  given: AbortSignal,
): Promise<StartedSandbox> {
  const { id, sandbox, link } = opened;
  const end = (): void => void sandbox.kill().catch(() => undefined);
  given.addEventListener('abort', end, { once: true });
  try {
    if (given.aborted) end();
    const connection = await link.connect(sandbox, { initializeTimeoutMs: INITIALIZE_MS });
    await records.running(id);
    log.info('The start of a sandbox was gone on with.', { sandboxId: id, agentId: row.agentId });
    return { ...opened, connection };
  } catch (error) {
    await sandbox.kill().catch(() => undefined);
    await cleanUpFailed(log, opened, given.aborted ? given.reason : error);
    throw error;
  } finally {
    given.removeEventListener('abort', end);
  }
}

type Opened = Omit<StartedSandbox, 'connection'>;

/** Gets hold of a sandbox of an earlier process and opens its sockets anew, for `work`; null when one of them fails. */
async function withSockets<T>(
  deps: StartDependencies,
  row: LiveSandboxRow,
  work: (opened: Opened) => Promise<T>,
): Promise<T | null> {
  const { id, orgId, agentId, model, tokenHash } = row;
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
    const sockets = await openSockets(deps, join(deps.paths.run, id), caller);
    close = sockets.close;
    // A frozen launcher does not dial. Where nothing freezes, as mostly without root, thawing is refused.
    if (sandbox.isFrozen) await sandbox.thaw();
    return await work({ id, sandbox, link: sockets.link, leave: close, cleanUp: cleaner(deps, id, close) });
  } catch (error) {
    log.warn('A sandbox could not be taken up.', { error: String(error) });
    close();
    await sandbox.kill().catch(() => undefined);
    return null;
  }
}
