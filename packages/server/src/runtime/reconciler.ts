import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isId } from '../domain/ids.ts';
import type { Keeper, KeeperOptions } from './keeper.ts';

const EVERY_MS = 30_000;

/**
 * Compares the host with the database and with what this process keeps, in both directions, now and then: a sandbox that
 * nobody keeps is ended, and a row without a sandbox too. What is found once may just be in between; twice it is not.
 */
export class Reconciler {
  readonly #options: Pick<KeeperOptions, 'driver' | 'records' | 'nodeId' | 'paths' | 'log'>;
  readonly #keeper: Keeper;
  #suspects = new Set<string>();
  #leaked = 0;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> | null = null;

  constructor(options: KeeperOptions, keeper: Keeper) {
    this.#options = options;
    this.#keeper = keeper;
  }

  /** Sandboxes on this host that nobody keeps and that could not be removed yet. */
  get leaked(): number {
    return this.#leaked;
  }

  begin(): void {
    // Never two at a time, nor one right after another that took long: "twice" would not mean anything.
    this.#timer = setInterval(() => {
      this.#round ??= this.look().finally(() => (this.#round = null));
    }, EVERY_MS);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await this.#round;
  }

  /** One comparison. Never rejects. */
  async look(): Promise<void> {
    const { driver, records, nodeId, paths, log } = this.#options;
    try {
      const [found, rows, folders] = await Promise.all([
        driver.list(),
        records.live(nodeId),
        readdir(paths.run).catch(() => []),
      ]);
      const known = new Set(this.#keeper.knownIds);
      const strange = (ids: string[]) => ids.filter((id) => !known.has(id));
      const stray = strange(found);
      const empty = strange(rows.map((row) => row.id));
      const left = strange(folders.filter((name) => isId(name)));
      const before = this.#suspects;
      this.#suspects = new Set([...stray, ...empty, ...left]);
      const sure = (ids: string[]) => ids.filter((id) => before.has(id));
      this.#leaked = sure(stray).length;
      await this.#each(sure(stray), async (id) => {
        log.warn('A sandbox that nobody keeps is removed.', { sandboxId: id });
        await driver.remove(id);
        this.#leaked -= 1;
      });
      await this.#each(sure(left), (id) => rm(join(paths.run, id), { recursive: true, force: true }));
      await this.#each(sure(empty), (id) => records.ended(id, 'stopped', 'It was not there any more.'));
      const abandoned = rows.filter((row) => row.isAbandoned);
      for (const row of abandoned) await this.#each([row.id], () => this.#endAbandoned(row));
    } catch (error) {
      log.error('The host and the database could not be compared; it is tried again.', {
        error: String(error),
      });
    }
  }

  /** One that cannot be put right keeps none of the others. */
  async #each(ids: string[], work: (id: string) => Promise<void>): Promise<void> {
    for (const id of ids) {
      await work(id).catch((error: unknown) =>
        this.#options.log.error('What is left of a sandbox could not be removed; it is tried again.', {
          sandboxId: id,
          error: String(error),
        }),
      );
    }
  }

  /**
   * Of an agent that is gone, or another node's by now. Whoever uses that of a deleted one is not waited for: while it
   * lives here, no other node removes what is left of the agent.
   */
  async #endAbandoned({ id, isDeleted }: { id: string; isDeleted: boolean }): Promise<void> {
    const kept = this.#keeper.byId(id);
    if (kept?.isIdle || (isDeleted && kept?.turns.size === 0))
      await kept.end('Its agent is not here any more.');
  }
}
