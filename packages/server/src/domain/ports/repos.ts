/** One file of a commit, read with `git cat-file`; the host never checks a repository out. */
export interface RepoFile {
  path: string;
  bytes: Buffer;
}

export interface FetchRequest {
  url: string;
  /** A branch, a tag or a full commit id; null is the remote's default branch. */
  ref: string | null;
  /** Sent as HTTP credentials to that one host, never written to disk. */
  token: string | null;
}

/** Bare repositories of agents, one each. */
export interface Repos {
  /** Makes the repository with a starter AGENTS.md on `main`; returns the commit. Idempotent. */
  createHosted(agentId: string, starter: Record<string, string>): Promise<{ commit: string; ref: string }>;
  /** Makes an empty one, to be filled by `fetch`. Idempotent. */
  createEmpty(agentId: string): Promise<void>;
  /** Fetches an https URL behind the SSRF guard. Errors are `RepoError` with a text that is safe to show. */
  fetch(agentId: string, request: FetchRequest): Promise<{ commit: string; ref: string }>;
  /** A full commit id for a branch, tag or (abbreviated) commit; null when there is none. */
  resolve(agentId: string, ref: string): Promise<string | null>;
  /** The file at a commit, or null; at most `maxBytes`, else RepoError. */
  readFile(agentId: string, commit: string, path: string, maxBytes: number): Promise<Buffer | null>;
  /** Writes the commit's tree as a tar archive (git archive); checks entry count and size on the way. */
  writeArchive(agentId: string, commit: string, targetPath: string): Promise<void>;
  remove(agentId: string): Promise<void>;
}

/** `message` is safe to show to the person who deploys. */
export class RepoError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'RepoError';
  }
}
