import { mkdir } from 'node:fs/promises';
import type { Log } from '../domain/log.ts';
import { RepoError, type DeployPushed, type GitWire, type Repos } from '../domain/ports/repos.ts';
import { HostNotFound, type UrlGuard } from '../domain/url-guard.ts';
import { BareRepos } from './bare-repos.ts';
import { ExternalFetcher } from './external-fetch.ts';
import { Maintenance } from './maintenance.ts';
import { defaultRepoLimits, type RepoLimits } from './repo-limits.ts';
import { RepoStore } from './repo-store.ts';
import { listTree } from './tree-list.ts';
import { SmartHttp } from './wire.ts';

export interface OpenReposOptions {
  /** Directory of all repositories (`config.paths.repos`). */
  root: string;
  log: Log;
  guard: UrlGuard;
  /** PEM files of certificate authorities that are trusted besides the system's. */
  extraCaFiles?: readonly string[];
  limits?: Partial<RepoLimits>;
}

export interface OpenRepos {
  repos: Repos;
  /** The deployment is bound later than the repositories, because its service needs them first. */
  wire(deploy: DeployPushed): GitWire;
  /** Rejects with RepoError when the commit's tree is more than `writeArchive` takes. Reads no file's content. */
  checkTree(agentId: string, commit: string): Promise<void>;
  /**
   * Rejects with RepoError when `fetch` would refuse the URL for what it is or where it leads to. A name that cannot be
   * resolved now is not refused: `fetch` looks again, and says so on the deployment.
   */
  checkUrl(url: string): Promise<void>;
  /** Resolves when background work has ended. */
  idle(): Promise<void>;
}

/** Opens the directory of repositories. */
export async function openRepos(options: OpenReposOptions): Promise<OpenRepos> {
  const limits = { ...defaultRepoLimits, ...options.limits };
  const log = options.log.child({ part: 'repos' });
  await mkdir(options.root, { recursive: true, mode: 0o700 });
  const store = new RepoStore(options.root);
  await store.sweep();
  const maintenance = new Maintenance(store, limits, log);
  const fetcher = new ExternalFetcher({
    store,
    limits,
    log,
    guard: options.guard,
    extraCaFiles: options.extraCaFiles ?? [],
    maintenance,
  });
  return {
    repos: new BareRepos(store, limits, fetcher, log),
    wire: (deploy) => new SmartHttp({ store, limits, log, deploy }, maintenance),
    checkTree: async (agentId, commit) => {
      await listTree(store.dir(agentId), commit, limits);
    },
    checkUrl: async (url) => {
      await fetcher.checkUrl(url).catch((error: unknown) => {
        if (!(error instanceof RepoError && error.cause instanceof HostNotFound)) throw error;
      });
    },
    idle: () => maintenance.idle(),
  };
}
