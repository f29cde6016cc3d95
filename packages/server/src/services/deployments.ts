import { requireEdit } from '../domain/access.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Deployment } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import { RepoError } from '../domain/ports/repos.ts';
import type { DeployPushed } from '../domain/ports/repos.ts';
import { requireStorable } from '../domain/text.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';
import type { ActiveDeployment, DeploymentStore } from '../store/deployments.ts';
import type { DeploymentsService } from './api.ts';
import type { DeployWork } from './deploy-work.ts';
import { pageById } from './paging.ts';
import { visibleAgent } from './visible-agent.ts';

export interface DeploymentsDependencies {
  db: Database;
  agents: AgentStore;
  deployments: DeploymentStore;
  work: DeployWork;
  cursors: Cursors;
}

export interface Deployments extends DeploymentsService {
  /** Deploys a push to the branch `main`; rejects with what the pushing terminal should show. */
  deployPushed: DeployPushed;
  /** For the runtime: what a sandbox is started from; a first deployment that is pending is waited for. */
  waitForDeployment(agentId: string, signal: AbortSignal): Promise<ActiveDeployment | null>;
}

export function createDeployments(deps: DeploymentsDependencies): Deployments {
  const { db, agents, deployments, work, cursors } = deps;

  async function existing(agentId: string, deploymentId: string): Promise<Deployment> {
    const found = isId(deploymentId) ? await deployments.get(agentId, deploymentId) : null;
    if (!found) throw notFound();
    return found;
  }

  return {
    async list(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      return pageById(cursors, `deployments:${agentId}`, query, (at) => deployments.list(agentId, at));
    },

    async get(p, agentId, deploymentId) {
      await visibleAgent(agents, p, agentId);
      return existing(agentId, deploymentId);
    },

    async create(p, agentId, input) {
      const { orgId, externalGitUrl } = await visibleAgent(agents, p, agentId);
      requireEdit(p);
      const external = externalGitUrl !== null;
      const ref = input.ref === undefined ? (external ? 'HEAD' : 'main') : readRef('ref', input.ref);
      const source = external ? 'fetch' : 'activate';
      const pending = await deployments.insert({ id: newId(), orgId, agentId, commit: null, ref, source });
      if (!db.inTransaction) return work.settle(pending);
      // Others see the row after the commit, and a fetch must not hold a transaction open: the answer is `pending`.
      work.settleLater(pending);
      return pending;
    },

    async activate(p, agentId, deploymentId) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      return db.tx(async () => {
        const agent = await agents.lock(agentId);
        if (!agent) throw notFound();
        const { status } = await existing(agentId, deploymentId);
        if (status !== 'ready') {
          throw new DomainError(
            'conflict',
            `Only a ready deployment can be activated; this one is ${status}.`,
          );
        }
        if (agent.deploymentId !== deploymentId) {
          await deployments.activate(agentId, deploymentId);
          agents.changed(agentId);
        }
        return existing(agentId, deploymentId);
      });
    },

    async deployPushed(agentId, { ref, commit }, progress) {
      const agent = await agents.get(agentId);
      if (!agent) throw notFound();
      if (agent.externalGitUrl !== null) {
        throw new RepoError(`This agent is deployed from ${agent.externalGitUrl}; push there, then deploy.`);
      }
      const { orgId } = agent;
      const pending = await deployments.insert({ id: newId(), orgId, agentId, commit, ref, source: 'push' });
      const settled = await work.settle(pending, progress);
      if (settled.status !== 'ready')
        throw new RepoError(settled.error ?? 'The deployment did not end; look at it later.');
      progress(`Deployed ${commit.slice(0, 7)} as ${settled.id}`);
    },

    waitForDeployment: (agentId, signal) => work.waitForActive(agentId, signal),
  };
}

/** A branch, tag or commit, by git's own rules for names (git-check-ref-format), so that it is never an option. */
function readRef(path: string, text: string): string {
  requireStorable(path, text);
  const ref = text.replace(/^refs\/(heads|tags)\//, '');
  const usable =
    ref.length > 0 &&
    ref.length <= limits.refChars &&
    // oxlint-disable-next-line no-control-regex
    !/[\u0000-\u0020\u007f~^:?*[\\]|\.\.|@\{|\/\/|^[-/]|[/.]$|\.lock$/.test(ref);
  if (!usable) throw invalid(path, 'must be the name of a branch or tag, or a commit id.');
  return ref;
}
