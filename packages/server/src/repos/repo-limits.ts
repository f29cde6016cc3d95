/** What one node takes on; each can be set where the repositories are composed. */
export interface RepoLimits {
  /** Largest pack of one push, and of one fetch. */
  packBytes: number;
  /** A repository above it takes no more pushes and fetches. */
  repoBytes: number;
  /** Branches and tags that one push may change. */
  refsPerPush: number;
  /** Address space of a git process that reads what a stranger sent. */
  memoryBytes: number;
  /** A push, from the first byte to the stored pack; a deployment comes after it. */
  pushTimeoutMs: number;
  /** A clone or fetch by a client. */
  serveTimeoutMs: number;
  /** What a client asks in one clone or fetch, after decompression; it is small. */
  readBodyBytes: number;
  /** From the head of such a request to the last byte of its body. */
  readBodyTimeoutMs: number;
  /** Of all such bodies at once; an agent has a quarter of it, an organisation three. */
  readBodiesBytes: number;
  /** A client that takes nothing of an answer for so long is cut off. */
  stillTimeoutMs: number;
  /** A server of an external repository, until it has told its branches; before that nothing is fetched. */
  listTimeoutMs: number;
  /** A fetch of an external repository. */
  fetchTimeoutMs: number;
  /** Silence of an uploading client. */
  idleTimeoutMs: number;
  archiveEntries: number;
  archiveBytes: number;
  /** Path of a file in an archive, in bytes. */
  pathBytes: number;
  /** Archives kept for each agent, so that a restart of its sandbox costs no git work. */
  cachedArchives: number;
}

export const defaultRepoLimits: RepoLimits = {
  packBytes: 256 * 1024 * 1024,
  repoBytes: 1024 * 1024 * 1024,
  refsPerPush: 100,
  memoryBytes: 2 * 1024 * 1024 * 1024,
  pushTimeoutMs: 10 * 60_000,
  serveTimeoutMs: 10 * 60_000,
  readBodyBytes: 8 * 1024 * 1024,
  readBodyTimeoutMs: 20_000,
  readBodiesBytes: 64 * 1024 * 1024,
  stillTimeoutMs: 30_000,
  listTimeoutMs: 15_000,
  fetchTimeoutMs: 3 * 60_000,
  idleTimeoutMs: 60_000,
  archiveEntries: 50_000,
  archiveBytes: 1024 * 1024 * 1024,
  pathBytes: 1024,
  cachedArchives: 2,
};
