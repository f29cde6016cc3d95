import type { IncomingMessage, ServerResponse } from 'node:http';

export interface FetchRequest {
  url: string;
  /** A branch, a tag or a full commit id; null is the remote's default branch. */
  ref: string | null;
  /** Sent as HTTP credentials to that one host, never written to disk. */
  token: string | null;
  /** Whose agent it is: fetches are shared out among organisations too. Left out: the agent stands for itself. */
  orgId?: string;
}

/** Bare repositories of agents, one each. */
export interface Repos {
  /**
   * Makes the repository with a starter AGENTS.md on `main`; returns the commit. Idempotent. Here and below, `ref` is
   * the short name of a branch or tag (`main`), or a full commit id.
   */
  createHosted(agentId: string, starter: Record<string, string>): Promise<{ commit: string; ref: string }>;
  /** Makes an empty one, to be filled by `fetch`. Idempotent. */
  createEmpty(agentId: string): Promise<void>;
  /** Fetches an https URL behind the SSRF guard. Errors are `RepoError` with a text that is safe to show. */
  fetch(agentId: string, request: FetchRequest): Promise<{ commit: string; ref: string }>;
  /** A full commit id for a branch, tag or (abbreviated) commit; null when there is none. */
  resolve(agentId: string, ref: string): Promise<string | null>;
  /** The file at a commit, or null; at most `maxBytes`, else RepoError. */
  readFile(agentId: string, commit: string, path: string, maxBytes: number): Promise<Buffer | null>;
  /** Holds a commit against garbage collection, so that a deployment of it can be activated for ever. Idempotent. */
  keep(agentId: string, commit: string): Promise<void>;
  /** Writes the commit's tree as a tar archive (mode 0644, whole or not at all); checks entry count and size. */
  writeArchive(agentId: string, commit: string, targetPath: string): Promise<void>;
  remove(agentId: string): Promise<void>;
}

/** What `git push` moved: `ref` is the short name of the deployed branch. */
export interface Pushed {
  ref: string;
  commit: string;
}

/**
 * Deploys what a push has stored, while the pushing client waits. `progress` prints a line in its terminal; a rejection
 * with RepoError or DomainError is shown there too, and takes the branch back to where it was. With the first line the
 * deployment is on record, so that it outlives a crash.
 */
export type DeployPushed = (
  agentId: string,
  pushed: Pushed,
  progress: (line: string) => void,
) => Promise<void>;

export type GitService = 'git-upload-pack' | 'git-receive-pack';

export interface GitTarget {
  agentId: string;
  /** Of the agent: places are shared out among organisations too. */
  orgId: string;
  service: GitService;
  /** The advertisement of refs (`GET info/refs`), not the exchange itself (`POST`). */
  advertise: boolean;
}

/** git's smart HTTP (gitprotocol-http) over the hosted repositories. */
export interface GitWire {
  /** Answers one request whose caller was checked before. Never rejects. */
  handle(target: GitTarget, request: IncomingMessage, response: ServerResponse): Promise<void>;
}

/** `message` is safe to show to the person who deploys. */
export class RepoError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'RepoError';
  }
}
