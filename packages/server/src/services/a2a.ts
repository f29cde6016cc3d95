import type { Box } from '../domain/box.ts';
import { canSeeAgent } from '../domain/access.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Principal, Run } from '../domain/nouns.ts';
import { isTerminal } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import { pushConfigContext } from '../domain/seal-context.ts';
import { requireStorable } from '../domain/text.ts';
import type { A2aPushStore, PushConfigRow } from '../store/a2a-push.ts';
import type { A2aTaskStore } from '../store/a2a-tasks.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';
import type { A2aService, PushConfig } from './a2a-api.ts';
import type { PushTargets } from './a2a-push-targets.ts';
import { createKnownContexts } from './known-contexts.ts';
import { visibleAgent } from './visible-agent.ts';
import { visibleRun } from './visible-conversation.ts';

export interface A2aDependencies {
  db: Database;
  agents: AgentStore;
  tasks: A2aTaskStore;
  pushes: A2aPushStore;
  box: Box;
  holdEncryptionKey: () => Promise<void>;
  cursors: Cursors;
  targets: PushTargets;
}

/** What A2A has beside the runs, conversations and events that it is a view of. */
export function createA2a(deps: A2aDependencies): Omit<A2aService, 'signCard' | 'publicKeys'> {
  const { db, agents, tasks, pushes, box, cursors, targets } = deps;
  const known = createKnownContexts();

  const shown = (row: PushConfigRow): PushConfig => {
    const secret = JSON.parse(box.open(row, pushConfigContext(row.id)).toString()) as PushConfig['secret'];
    return { id: row.configId, url: row.url, version: row.version, secret };
  };

  async function ownRun(p: Principal, agentId: string, runId: string): Promise<Run> {
    const run = await visibleRun(db, p, runId);
    if (run.agentId !== agentId) throw notFound();
    return run;
  }

  return {
    async resolveContext(p, agentId, contextId) {
      requireStorable('contextId', contextId);
      await visibleAgent(agents, p, agentId);
      const found = await tasks.findContext(agentId, contextId, isId(contextId) ? contextId : null);
      const conversationId = found ?? (await tasks.putContext(agentId, contextId, newId()));
      known.put(agentId, contextId, conversationId);
      return conversationId;
    },

    knownContext: (p, agentId, contextId) =>
      canSeeAgent(p, { id: agentId, orgId: p.orgId }) ? known.get(agentId, contextId) : null,

    async findContext(p, agentId, contextId) {
      await visibleAgent(agents, p, agentId);
      return tasks.findContext(agentId, contextId, isId(contextId) ? contextId : null);
    },

    contextIds: (conversationIds) => tasks.contextIds(conversationIds),

    forgetSend: (p, runId) => tasks.forgetSend(p.keyId, runId),

    async listTasks(p, agentId, { limit, cursor, ...filter }) {
      await visibleAgent(agents, p, agentId);
      const name = `a2a-tasks:${agentId}:${JSON.stringify(filter)}`;
      const before = cursor === null ? null : placeOf(cursors.decode(name, cursor));
      const { rows, total } = await tasks.list(agentId, filter, before, limit + 1);
      const page = rows.slice(0, limit);
      const last = page.at(-1);
      const nextCursor =
        rows.length > limit && last ? cursors.encode(name, `${last.statusAt.getTime()}.${last.runId}`) : null;
      return { rows: page, total, nextCursor };
    },

    async taskEvents(p, runIds, withArtifacts) {
      return runIds.length === 0 ? [] : tasks.events(p, runIds, withArtifacts);
    },

    async putPushConfig(p, agentId, runId, config, fromStart) {
      const run = await ownRun(p, agentId, runId);
      await targets.check(config.url);
      const configId = config.id || runId;
      const deliveredSeq = fromStart ? 0 : await tasks.lastSeq(runId);
      await db.tx(async () => {
        if ((await pushes.countOthers(runId, configId)) >= limits.pushConfigsPerTask) {
          throw invalid('id', `a task has at most ${limits.pushConfigsPerTask} push configurations.`);
        }
        await deps.holdEncryptionKey();
        const id = newId();
        const sealed = box.seal(Buffer.from(JSON.stringify(config.secret)), pushConfigContext(id));
        const { orgId, conversationId } = run;
        const row = { id, orgId, agentId, conversationId, runId, keyId: p.keyId, configId, ...sealed };
        const isOver = !fromStart && isTerminal(run.status);
        await pushes.put({ ...row, url: config.url, version: config.version, deliveredSeq }, isOver);
      });
      return { ...config, id: configId };
    },

    async pushConfigs(p, agentId, runId) {
      await ownRun(p, agentId, runId);
      return (await pushes.list(runId)).map(shown);
    },

    async removePushConfig(p, agentId, runId, configId) {
      await ownRun(p, agentId, runId);
      await pushes.remove(runId, configId);
    },

    checkPushTarget: (url) => targets.check(url),
  };
}

function placeOf(position: string): { statusAt: Date; runId: string } {
  const [ms, runId] = position.split('.', 2);
  if (!ms || !runId || !isId(runId)) throw new DomainError('invalid_cursor', 'The page token is malformed.');
  return { statusAt: new Date(Number(ms)), runId };
}
