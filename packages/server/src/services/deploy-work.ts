import { DomainError } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import { readManifest } from '../domain/manifest.ts';
import type { Manifest } from '../domain/manifest.ts';
import type { Agent, Deployment } from '../domain/nouns.ts';
import { RepoError } from '../domain/ports/repos.ts';
import type { Repos } from '../domain/ports/repos.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';
import type { ActiveDeployment, DeploymentStore } from '../store/deployments.ts';
import { asUnavailable } from '../store/errors.ts';

export interface DeployWorkDependencies {
  db: Database;
  agents: AgentStore;
  deployments: DeploymentStore;
  repos: Repos;
  /** Credentials for fetching from this URL; null = none. Rejects with RepoError when they are for another place. */
  gitToken: (agentId: string, url: string) => Promise<string | null>;
  /** Rejects with RepoError when the commit's tree is more than a sandbox may unpack. */
  checkTree: (agentId: string, commit: string) => Promise<void>;
  log: Log;
}

export type Progress = (line: string) => void;

/** Works pending deployments off: one at a time for an agent, in the order in which they were made. */
export interface DeployWork {
  /** Resolves when the deployment is ready or failed, with what became of it. */
  settle(deployment: Deployment, progress?: Progress): Promise<Deployment>;
  /** Begins after the commit of the calling transaction; nobody waits. */
  settleLater(deployment: Deployment): void;
  /** Takes up what a crash left unfinished. */
  resume(): Promise<void>;
  /** The agent's active deployment. A first one that is still pending is waited for; null = there is none to come. */
  waitForActive(agentId: string, signal: AbortSignal): Promise<ActiveDeployment | null>;
  /** Resolves when nothing is being worked on. */
  idle(): Promise<void>;
}

const RETRY_MS = 5000;
const LOOK_AGAIN_MS = 500;

export function createDeployWork(deps: DeployWorkDependencies): DeployWork {
  const { db, agents, deployments, log } = deps;
  const tails = new Map<string, Promise<unknown>>();
  const waiters = new Set<() => void>();

  async function work(deployment: Deployment, progress: Progress): Promise<Deployment> {
    const { id, agentId } = deployment;
    try {
      const agent = await agents.get(agentId);
      if (!agent) throw new RepoError('The agent was deleted.');
      const { commit, ref } = await resolveCommit(deps, agent, deployment, progress);
      await deployments.resolved(id, commit, ref);
      await deps.checkTree(agentId, commit);
      const manifest = await manifestOf(deps.repos, agentId, commit, progress);
      await deps.repos.keep(agentId, commit);
      await db.tx(() => finish(deployment, manifest));
    } catch (error) {
      if (isDatabaseFailure(error)) throw error;
      await deployments.markFailed(id, safeText(error, log, deployment));
      // What is made after an agent's repository was removed nobody else would ever remove.
      if (!(await agents.get(agentId))) await deps.repos.remove(agentId);
    } finally {
      for (const wake of waiters) wake();
    }
    return (await deployments.get(agentId, id)) ?? deployment;
  }

  /** Ready, and active unless a later one has been active already; both or neither. */
  async function finish({ id, agentId }: Deployment, manifest: Manifest): Promise<void> {
    if (!(await agents.lock(agentId))) throw new RepoError('The agent was deleted.');
    if (!(await deployments.markReady(id, manifest))) return;
    if (await deployments.newerWasActive(agentId, id)) return;
    await deployments.activate(agentId, id);
    agents.changed(agentId);
  }

  function settle(deployment: Deployment, progress: Progress = () => {}): Promise<Deployment> {
    const { agentId } = deployment;
    const turn = (tails.get(agentId) ?? Promise.resolve()).then(() => work(deployment, progress));
    const tail: Promise<unknown> = turn
      .catch(() => {})
      .then(() => {
        if (tails.get(agentId) === tail) tails.delete(agentId);
      });
    tails.set(agentId, tail);
    return turn;
  }

  /** A database that is away must not strand a deployment: it is tried again until it is settled. */
  function settleInBackground(deployment: Deployment): void {
    db.outside(() => settle(deployment)).catch((error: unknown) => {
      log.error('A deployment could not be worked on; it is tried again.', {
        deploymentId: deployment.id,
        error: String(error),
      });
      setTimeout(() => settleInBackground(deployment), RETRY_MS).unref();
    });
  }

  return {
    settle: (deployment, progress) => db.outside(() => settle(deployment, progress)),
    settleLater: (deployment) => db.afterCommit(() => settleInBackground(deployment)),

    async resume() {
      for (const deployment of await deployments.pending()) settleInBackground(deployment);
    },

    async waitForActive(agentId, signal) {
      for (;;) {
        signal.throwIfAborted();
        const active = await deployments.activeOf(agentId);
        if (active) return active;
        if ((await deployments.pending(agentId)).length === 0) return deployments.activeOf(agentId);
        await wakeOr(waiters, LOOK_AGAIN_MS, signal);
      }
    },

    async idle() {
      while (tails.size > 0) await Promise.all(tails.values());
    },
  };
}

/** The commit is known already when a push brought it. */
async function resolveCommit(
  { repos, gitToken }: DeployWorkDependencies,
  agent: Agent,
  { ref, commit, source }: Deployment,
  progress: Progress,
): Promise<{ commit: string; ref: string }> {
  if (commit !== null) return { commit, ref };
  if (agent.externalGitUrl !== null) {
    progress(`Fetching ${ref}`);
    await repos.createEmpty(agent.id);
    const token = await gitToken(agent.id, agent.externalGitUrl);
    const wanted = ref === 'HEAD' ? null : ref;
    return repos.fetch(agent.id, { url: agent.externalGitUrl, ref: wanted, token, orgId: agent.orgId });
  }
  if (source === 'create' || source === 'fetch') {
    throw new RepoError('The agent holds its own repository now; there is nothing to fetch.');
  }
  const found = await repos.resolve(agent.id, ref);
  if (found === null) throw new RepoError(`The repository has no branch, tag or commit "${ref}".`);
  return { commit: found, ref };
}

async function manifestOf(
  repos: Repos,
  agentId: string,
  commit: string,
  progress: Progress,
): Promise<Manifest> {
  progress('Reading agent.json');
  const bytes = await repos.readFile(agentId, commit, 'agent.json', limits.manifestBytes);
  const result = readManifest(bytes === null ? null : bytes.toString());
  if (!result.ok) throw new RepoError(result.error);
  for (const note of result.notes) progress(note);
  const { instructions } = result.manifest;
  if (instructions !== null) {
    const found = await repos.readFile(agentId, commit, instructions, limits.instructionsBytes);
    if (found === null)
      throw new RepoError(`agent.json: instructions: the repository has no file "${instructions}".`);
  }
  return result.manifest;
}

function safeText(error: unknown, log: Log, { id, agentId }: Deployment): string {
  if (error instanceof RepoError || error instanceof DomainError)
    return error.message.replaceAll('\u0000', '\ufffd');
  log.error('A deployment failed.', { deploymentId: id, agentId, error: String(error) });
  return 'The deployment failed inside the service; its log says why. Deploy again.';
}

/** What says nothing about the deployment: it stays pending and is tried again. */
function isDatabaseFailure(error: unknown): boolean {
  if (error instanceof DomainError) return error.code === 'unavailable';
  const { name, syscall } = error as NodeJS.ErrnoException;
  // Of the file system and of starting git comes the same ENOENT as of a socket that is not there.
  const ofHost = syscall !== undefined && !/^(connect|read|write)$/.test(syscall);
  return name === 'PostgresError' || (!ofHost && asUnavailable(error) !== null);
}

function wakeOr(waiters: Set<() => void>, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      waiters.delete(done);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    waiters.add(done);
    signal.addEventListener('abort', done);
    if (signal.aborted) done();
  });
}
