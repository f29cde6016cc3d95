import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../domain/log.ts';
import { KeyGate } from '../domain/key-gate.ts';
import { runGit } from './git-process.ts';
import type { RepoLimits } from './repo-limits.ts';
import type { RepoStore } from './repo-store.ts';

const pushesBetween = 25;
const leftoverMs = 24 * 60 * 60 * 1000;

/** Packs repositories in the background after some pushes, one at a time on this node, never inside a request. */
export class Maintenance {
  readonly #store: RepoStore;
  readonly #limits: RepoLimits;
  readonly #log: Log;
  readonly #gate = new KeyGate({ total: 1, perKey: 1, maxWaiting: 1000 });
  readonly #counts = new Map<string, number>();
  #running: Promise<void> = Promise.resolve();

  constructor(store: RepoStore, limits: RepoLimits, log: Log) {
    this.#store = store;
    this.#limits = limits;
    this.#log = log;
  }

  /** Counts one push or fetch. */
  pushed(agentId: string): void {
    const count = (this.#counts.get(agentId) ?? 0) + 1;
    this.#counts.set(agentId, count % pushesBetween);
    if (count < pushesBetween) return;
    const work = this.#collect(agentId).catch((error: unknown) => {
      this.#log.warn('git maintenance failed', { agentId, error });
    });
    this.#running = Promise.all([this.#running, work]).then(() => undefined);
  }

  /** Resolves when what was begun is done. */
  idle(): Promise<void> {
    return this.#running;
  }

  async #collect(agentId: string): Promise<void> {
    const leave = await this.#gate.enter(agentId);
    try {
      if (!(await this.#store.exists(agentId))) return;
      const dir = this.#store.dir(agentId);
      // Unreachable objects are dropped after two weeks; a push in progress is far younger.
      const result = await runGit(['gc', '--quiet', '--prune=2.weeks.ago'], {
        gitDir: dir,
        timeoutMs: 10 * 60_000,
        caps: { memoryBytes: this.#limits.memoryBytes },
      });
      if (result.code !== 0)
        throw new Error(`git gc ended with ${result.code}: ${result.stderr.slice(0, 500)}`);
      await removeLeftovers(dir);
    } finally {
      leave();
    }
  }
}

/** Quarantines and half-written packs of git processes that were killed. */
async function removeLeftovers(dir: string): Promise<void> {
  for (const folder of ['objects', 'objects/pack']) {
    for (const name of await readdir(join(dir, folder)).catch(() => [])) {
      if (!/^(tmp_|incoming-)/.test(name)) continue;
      const path = join(dir, folder, name);
      const made = await stat(path).catch(() => null);
      if (made && Date.now() - made.mtimeMs > leftoverMs) await rm(path, { recursive: true, force: true });
    }
  }
}
