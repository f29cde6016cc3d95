import { requireEdit } from '../domain/access.ts';
import { limits } from '../domain/limits.ts';
import type { Cursors } from '../domain/paging.ts';
import type { AgentStore } from '../store/agents.ts';
import { listConversations, listMessages } from '../store/conversations.ts';
import type { Database } from '../store/database.ts';
import { closeConversation } from '../store/run-life.ts';
import type { ConversationsService } from './api.ts';
import { pageById } from './paging.ts';
import type { RunLife } from './run-life.ts';
import { visibleAgent } from './visible-agent.ts';
import { visibleConversation } from './visible-conversation.ts';

export interface ConversationsDependencies {
  db: Database;
  agents: AgentStore;
  cursors: Cursors;
  life: Pick<RunLife, 'signal' | 'publish' | 'forget'>;
}

export function createConversations(deps: ConversationsDependencies): ConversationsService {
  const { db, agents, cursors, life } = deps;
  return {
    async listForAgent(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      return pageById(cursors, `conversations:${agentId}`, query, ({ before, limit }) =>
        listConversations(db, agentId, before, limit),
      );
    },

    get: (p, id) => visibleConversation(db, p, id),

    async remove(p, id) {
      await visibleConversation(db, p, id);
      requireEdit(p);
      const { runningRunId, cancelled } = await closeConversation(db, id);
      db.afterCommit(() => {
        life.forget(id);
        life.publish.written(cancelled);
        if (runningRunId) life.signal(runningRunId);
      });
    },

    async messages(p, id, query) {
      await visibleConversation(db, p, id);
      return pageById(cursors, `messages:${id}`, query, ({ before, limit }) =>
        listMessages(db, p, id, before, limit, limits.pageBytes),
      );
    },
  };
}
