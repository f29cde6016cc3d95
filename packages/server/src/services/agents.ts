import { canSeeAgent, requireEdit, requireOrgBound } from '../domain/access.ts';
import { invalid, notFound } from '../domain/errors.ts';
import { readGitUrl } from '../domain/git-url.ts';
import { isId, newId } from '../domain/ids.ts';
import { defaultManifest } from '../domain/manifest.ts';
import type { Agent } from '../domain/nouns.ts';
import { readOrigins } from '../domain/origins.ts';
import type { Cursors } from '../domain/paging.ts';
import type { Doorbell } from '../domain/ports/doorbell.ts';
import { RepoError } from '../domain/ports/repos.ts';
import type { Repos } from '../domain/ports/repos.ts';
import { readDescription, readModel, readName } from '../domain/text.ts';
import type { AgentPatch, AgentStore, NewAgent } from '../store/agents.ts';
import type { ApiKeyStore } from '../store/api-keys.ts';
import { removeBudget } from '../store/budgets.ts';
import type { Database } from '../store/database.ts';
import type { DeploymentStore } from '../store/deployments.ts';
import type { ChannelStore } from '../store/channels.ts';
import type { ScheduleStore } from '../store/schedules.ts';
import type { SecretStore } from '../store/secrets.ts';
import type { AgentsService } from './api.ts';
import type { Auth } from './auth.ts';
import { createKnownAgents } from './known-agents.ts';
import type { DeployWork } from './deploy-work.ts';
import { pageById } from './paging.ts';
import { starterFiles } from './starter.ts';
import { visibleAgent } from './visible-agent.ts';

export interface AgentsDependencies {
  db: Database;
  agents: AgentStore;
  keys: ApiKeyStore;
  secrets: SecretStore;
  channels: Pick<ChannelStore, 'removeAllOfAgent'>;
  schedules: Pick<ScheduleStore, 'removeAllOfAgent'>;
  deployments: DeploymentStore;
  repos: Repos;
  work: DeployWork;
  auth: Pick<Auth, 'forget'>;
  doorbell: Doorbell;
  cursors: Cursors;
  defaultModel: () => string;
  /** Rejects with RepoError when the service may not fetch from there (SSRF guard). */
  checkUrl: (url: string) => Promise<void>;
  /** The address of a repository that the service holds: an agent's gitUrl when it has no external one. */
  hostedGitUrl: (agentId: string) => string;
  /** There is an agent of which all that hosts keep is to be removed; see agent-removals.ts. */
  wakeRemovals: () => void;
}

/**
 * Makes an agent that holds its own repository, with a first active deployment, in the calling transaction. The
 * repository comes first: a crash can leave one without an agent, never an agent without one.
 */
export async function createHostedAgent(
  deps: Pick<AgentsDependencies, 'agents' | 'deployments' | 'repos'>,
  agent: NewAgent,
  files: Record<string, string>,
): Promise<Agent> {
  const { agents, deployments, repos } = deps;
  const { commit, ref } = await repos.createHosted(agent.id, files);
  await repos.keep(agent.id, commit);
  await agents.insert(agent);
  const { orgId, id: agentId } = agent;
  const deployment = await deployments.insert({ id: newId(), orgId, agentId, commit, ref, source: 'create' });
  await deployments.markReady(deployment.id, defaultManifest);
  await deployments.activate(agentId, deployment.id);
  return (await agents.get(agentId))!;
}

export function createAgents(deps: AgentsDependencies): AgentsService {
  const { db, agents, keys, secrets, deployments, work, cursors } = deps;
  const known = createKnownAgents(deps);

  /** The external URL that is meant; null when it is the address of the repository that the service holds. */
  async function readTarget(gitUrl: string, agentId: string): Promise<string | null> {
    if (gitUrl === deps.hostedGitUrl(agentId)) return null;
    const url = readGitUrl('gitUrl', gitUrl);
    try {
      await deps.checkUrl(url);
    } catch (error) {
      if (error instanceof RepoError) throw invalid('gitUrl', error.message);
      throw error;
    }
    return url;
  }

  /** The fetch begins after the commit; runs wait for it, and a failure shows on the deployment. */
  async function deployFromUrl(
    { id: agentId, orgId }: NewAgent | Agent,
    source: 'create' | 'fetch',
  ): Promise<void> {
    work.settleLater(
      await deployments.insert({ id: newId(), orgId, agentId, commit: null, ref: 'HEAD', source }),
    );
  }

  return {
    async list(p, query) {
      return pageById(cursors, `agents:${p.orgId}`, query, (at) =>
        agents.list(p.orgId, { ...at, only: p.agentId }),
      );
    },

    get: (p, id) => visibleAgent(known, p, id),

    known(p, id) {
      const agent = known.peek(id);
      return agent && canSeeAgent(p, agent) ? agent : null;
    },

    find: async (id) => (isId(id) ? known.get(id) : null),

    async create(p, input) {
      requireEdit(p);
      requireOrgBound(p);
      const agent = {
        id: newId(),
        orgId: p.orgId,
        name: readName('name', input.name),
        description: readDescription('description', input.description ?? ''),
        model: input.model === undefined ? deps.defaultModel() : readModel('model', input.model),
      };
      if (input.gitUrl === undefined) {
        const hosted = { ...agent, externalGitUrl: null };
        return db.tx(() => createHostedAgent(deps, hosted, starterFiles(agent.name)));
      }
      const external = { ...agent, externalGitUrl: await readTarget(input.gitUrl, agent.id) };
      return db.tx(async () => {
        const made = await agents.insert(external);
        await deployFromUrl(made, 'create');
        return made;
      });
    },

    async update(p, id, input) {
      const before = await visibleAgent(agents, p, id);
      requireEdit(p);
      const patch = await readPatch(input, before, readTarget);
      if (Object.keys(patch).length === 0) return before;
      return db.tx(async () => {
        if (!(await agents.lock(id))) throw notFound();
        const after = (await agents.update(id, patch))!;
        if (typeof patch.externalGitUrl === 'string') await deployFromUrl(after, 'fetch');
        return after;
      });
    },

    async remove(p, id) {
      await visibleAgent(agents, p, id);
      requireEdit(p);
      requireOrgBound(p);
      await db.tx(async () => {
        if (!(await agents.lock(id))) throw notFound();
        await agents.markDeleted(id);
        const hashes = await keys.revokeAllOfAgent(id);
        await secrets.removeAllOfAgent(id);
        await deps.channels.removeAllOfAgent(id);
        await deps.schedules.removeAllOfAgent(id);
        await removeBudget(db, id);
        db.afterCommit(() => {
          deps.auth.forget(hashes);
          deps.wakeRemovals();
        });
      });
    },
  };
}

type Patch = Parameters<AgentsService['update']>[2];

/** Only what really changes: a client may send back all that it read. */
async function readPatch(
  input: Patch,
  before: Agent,
  readTarget: (gitUrl: string, agentId: string) => Promise<string | null>,
): Promise<AgentPatch> {
  const patch: AgentPatch = {};
  const name = input.name === undefined ? before.name : readName('name', input.name);
  if (name !== before.name) patch.name = name;
  const description =
    input.description === undefined ? before.description : readDescription('description', input.description);
  if (description !== before.description) patch.description = description;
  if (input.allowedOrigins !== undefined) {
    const origins = readOrigins('allowedOrigins', input.allowedOrigins);
    if (origins.join(' ') !== before.allowedOrigins.join(' ')) patch.allowedOrigins = origins;
  }
  const model = input.model === undefined ? before.model : readModel('model', input.model);
  if (model !== before.model) patch.model = model;
  if (input.gitUrl !== undefined && input.gitUrl !== before.externalGitUrl) {
    const target = await readTarget(input.gitUrl, before.id);
    if (target !== before.externalGitUrl) patch.externalGitUrl = target;
  }
  return patch;
}
