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
  #round: Promise<void> = Promise.resolve();

  constructor(options: KeeperOptions, keeper: Keeper) {
    this.#options = options;
    this.#keeper = keeper;
  }

  /** Sandboxes on this host that nobody keeps and that could not be removed yet. */
  get leaked(): number {
    return this.#leaked;
  }

  begin(): void {
    this.#timer = setInterval(() => {
      this.#round = this.#round.then(() => this.look());
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
      for (const id of sure(stray)) {
        log.warn('A sandbox that nobody keeps is removed.', { sandboxId: id });
        await driver.remove(id);
        this.#leaked -= 1;
      }
      for (const id of sure(left)) await rm(join(paths.run, id), { recursive: true, force: true });
      for (const id of sure(empty)) await records.ended(id, 'stopped', 'It was not there any more.');
      await this.#endAbandoned(rows.filter((row) => row.isAbandoned).map((row) => row.id));
    } catch (error) {
      log.error('The host and the database could not be compared; it is tried again.', {
        error: String(error),
      });
    }
  }

  /** Of agents that are gone, or another node's by now. */
  async #endAbandoned(ids: string[]): Promise<void> {
    for (const id of ids) {
      const kept = this.#keeper.byId(id);
      if (kept?.isIdle) await kept.end('Its agent is not here any more.');
    }
  }
}
