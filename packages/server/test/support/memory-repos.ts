import { createHash } from 'node:crypto';
import { RepoError } from '../../src/domain/ports/repos.ts';
import type { FetchRequest, Repos } from '../../src/domain/ports/repos.ts';

type Files = Record<string, string>;

export interface MemoryRepos extends Repos {
  /** As a push would: stores a commit and moves the branch. */
  commit(agentId: string, branch: string, files: Files): string;
  /** What is behind a URL, by ref; null is its default branch. */
  remotes: Map<string, Map<string, Files>>;
  fetches: (FetchRequest & { agentId: string })[];
  kept: Set<string>;
  /** Holds fetches back until it resolves. */
  gate: Promise<void>;
  has(agentId: string): boolean;
}

/** Repositories in memory, for tests of what is above them; the real ones have their own tests. */
export function memoryRepos(): MemoryRepos {
  const repos = new Map<string, { commits: Map<string, Files>; refs: Map<string, string> }>();
  const repoOf = (agentId: string) => {
    const made = repos.get(agentId) ?? { commits: new Map<string, Files>(), refs: new Map<string, string>() };
    repos.set(agentId, made);
    return made;
  };
  const commit = (agentId: string, branch: string, files: Files) => {
    const id = createHash('sha1').update(JSON.stringify(files)).digest('hex');
    repoOf(agentId).commits.set(id, files);
    repoOf(agentId).refs.set(branch, id);
    return id;
  };
  const self: MemoryRepos = {
    commit,
    remotes: new Map(),
    fetches: [],
    kept: new Set(),
    gate: Promise.resolve(),
    has: (agentId) => repos.has(agentId),
    async createHosted(agentId, starter) {
      const found = repos.get(agentId)?.refs.get('main');
      return { commit: found ?? commit(agentId, 'main', starter), ref: 'main' };
    },
    async createEmpty(agentId) {
      repoOf(agentId);
    },
    async fetch(agentId, request) {
      self.fetches.push({ ...request, agentId });
      await self.gate;
      const files = self.remotes.get(request.url)?.get(request.ref ?? 'main');
      if (!files) throw new RepoError(`There is no ${request.ref ?? 'default branch'} at ${request.url}.`);
      return { commit: commit(agentId, request.ref ?? 'main', files), ref: request.ref ?? 'main' };
    },
    async resolve(agentId, ref) {
      const repo = repoOf(agentId);
      return repo.refs.get(ref) ?? (repo.commits.has(ref) ? ref : null);
    },
    async readFile(agentId, id, path, maxBytes) {
      const text = repoOf(agentId).commits.get(id)?.[path];
      if (text === undefined) return null;
      if (Buffer.byteLength(text) > maxBytes)
        throw new RepoError(`${path} is larger than ${maxBytes} bytes.`);
      return Buffer.from(text);
    },
    async keep(agentId, id) {
      self.kept.add(`${agentId}:${id}`);
    },
    async writeArchive() {
      throw new Error('Archives are tested on real repositories.');
    },
    async remove(agentId) {
      repos.delete(agentId);
    },
  };
  return self;
}
