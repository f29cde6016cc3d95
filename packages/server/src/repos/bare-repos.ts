import type { Log } from '../domain/log.ts';
import { RepoError, type FetchRequest, type Repos } from '../domain/ports/repos.ts';
import { ArchiveCache } from './archive-cache.ts';
import { writeTreeArchive } from './archive.ts';
import { runGit } from './git-process.ts';
import { isCommitId, isRefName } from './ref-names.ts';
import type { RepoLimits } from './repo-limits.ts';
import { keptRefs, type RepoStore } from './repo-store.ts';
import { starterStream } from './starter.ts';
import { readTreeFile } from './tree-file.ts';

/** Fetches from elsewhere into an agent's repository. */
export interface Fetcher {
  fetch(agentId: string, request: FetchRequest): Promise<{ commit: string; ref: string }>;
}

/** Bare repositories on the local disk, by the git program. Nothing of a repository is ever checked out here. */
export class BareRepos implements Repos {
  readonly #store: RepoStore;
  readonly #limits: RepoLimits;
  readonly #fetcher: Fetcher;
  readonly #log: Log;
  readonly #archives: ArchiveCache;

  constructor(store: RepoStore, limits: RepoLimits, fetcher: Fetcher, log: Log) {
    this.#store = store;
    this.#limits = limits;
    this.#fetcher = fetcher;
    this.#log = log;
    this.#archives = new ArchiveCache(limits.cachedArchives);
  }

  async createHosted(
    agentId: string,
    starter: Record<string, string>,
  ): Promise<{ commit: string; ref: string }> {
    await this.#store.make(agentId, async (gitDir) => {
      const args = ['fast-import', '--quiet', '--done', '--date-format=raw'];
      const input = starterStream(starter, Date.now());
      const result = await runGit(args, { gitDir, timeoutMs: 30_000, input });
      if (result.code === 0) return;
      throw new Error(`git fast-import ended with ${result.code}: ${result.stderr.slice(0, 500)}`);
    });
    const commit = await this.#store.commitOf(agentId, 'refs/heads/main');
    if (commit === null) throw new RepoError('The repository exists and has no branch main.');
    return { commit, ref: 'main' };
  }

  async createEmpty(agentId: string): Promise<void> {
    await this.#store.make(agentId, () => Promise.resolve());
  }

  fetch(agentId: string, request: FetchRequest): Promise<{ commit: string; ref: string }> {
    return this.#fetcher.fetch(agentId, request);
  }

  async resolve(agentId: string, ref: string): Promise<string | null> {
    if (!(await this.#store.exists(agentId))) return null;
    const name = ref.replace(/^refs\/(heads|tags)\//, '');
    if (!isRefName(name)) return null;
    const wanted = ref === name ? [`refs/heads/${name}`, `refs/tags/${name}`] : [ref];
    if (/^[0-9a-f]{7,40}$/.test(ref)) wanted.push(ref);
    for (const candidate of wanted) {
      const commit = await this.#store.commitOf(agentId, candidate);
      if (commit !== null) return commit;
    }
    return null;
  }

  async readFile(agentId: string, commit: string, path: string, maxBytes: number): Promise<Buffer | null> {
    return readTreeFile(this.#store.dir(agentId), requireCommit(commit), path, maxBytes);
  }

  async keep(agentId: string, commit: string): Promise<void> {
    const done = await this.#store.moveRef(agentId, `${keptRefs}/${requireCommit(commit)}`, commit, null);
    if (!done) throw new RepoError(`The repository has no commit ${commit}.`);
  }

  async writeArchive(agentId: string, commit: string, targetPath: string): Promise<void> {
    const gitDir = this.#store.dir(agentId);
    const startedMs = performance.now();
    await this.#archives.provide(gitDir, requireCommit(commit), targetPath, (path) =>
      writeTreeArchive(gitDir, commit, path, this.#limits),
    );
    this.#log.debug('archive written', {
      agentId,
      commit,
      tookMs: Math.round(performance.now() - startedMs),
    });
  }

  async remove(agentId: string): Promise<void> {
    await this.#store.remove(agentId);
  }
}

/** Only a full id names a commit for ever, and it can be no option of a git command. */
function requireCommit(commit: string): string {
  if (!isCommitId(commit)) throw new RepoError('A commit is named by its full id of 40 hex digits.');
  return commit;
}
