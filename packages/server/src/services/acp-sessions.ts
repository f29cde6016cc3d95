import { requireEdit } from '../domain/access.ts';
import { notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Cursors } from '../domain/paging.ts';
import { requireStorable } from '../domain/text.ts';
import type { AcpSessionStore } from '../store/acp-sessions.ts';
import type { AgentStore } from '../store/agents.ts';
import type { AcpSessionsService, ConversationsService } from './api.ts';
import { pageById } from './paging.ts';
import { visibleAgent } from './visible-agent.ts';

/** The working folder of a conversation that did not begin as a session: where it is inside of the sandbox. */
const WORKSPACE = '/workspace';

export interface AcpSessions extends AcpSessionsService {
  /** Forgets sessions in which nothing was said for long. To be called now and then. */
  purge(): Promise<number>;
}

export function createAcpSessions(deps: {
  agents: AgentStore;
  acpSessions: AcpSessionStore;
  conversations: Pick<ConversationsService, 'remove'>;
  cursors: Cursors;
}): AcpSessions {
  const { agents, acpSessions, conversations, cursors } = deps;
  return {
    async create(p, agentId, { cwd }) {
      requireStorable('cwd', cwd);
      const agent = await visibleAgent(agents, p, agentId);
      const id = newId();
      await acpSessions.insert({ id, orgId: agent.orgId, agentId, cwd });
      return { id, cwd, title: '', lastMessageAt: null };
    },

    async get(p, agentId, id) {
      await visibleAgent(agents, p, agentId);
      const found = isId(id) ? await acpSessions.find(agentId, id, WORKSPACE) : null;
      if (!found) throw notFound();
      return found;
    },

    async list(p, agentId, cwd, query) {
      if (cwd !== null) requireStorable('cwd', cwd);
      await visibleAgent(agents, p, agentId);
      return pageById(cursors, `acp-sessions:${agentId}:${cwd ?? ''}`, query, (at) =>
        acpSessions.list(agentId, cwd, WORKSPACE, at),
      );
    },

    async remove(p, agentId, id) {
      await visibleAgent(agents, p, agentId);
      const found = isId(id) ? await acpSessions.find(agentId, id, WORKSPACE) : null;
      if (!found) return;
      if (found.lastMessageAt === null) return acpSessions.remove(agentId, id);
      requireEdit(p);
      await conversations.remove(p, id);
    },

    purge: () => acpSessions.purge(limits.acpUnusedSessionDays),
  };
}
