import { requireEdit } from '../domain/access.ts';
import { notFound } from '../domain/errors.ts';
import type { Cursors } from '../domain/paging.ts';
import type { AgentStore } from '../store/agents.ts';
import { deleteConversation, listConversations, listMessages } from '../store/conversations.ts';
import type { Database } from '../store/database.ts';
import type { ConversationsService } from './api.ts';
import type { Cancel } from './cancel.ts';
import type { Hub } from './hub.ts';
import { pageById } from './paging.ts';
import { visibleAgent } from './visible-agent.ts';
import { visibleConversation } from './visible-conversation.ts';

export interface ConversationsDependencies {
  db: Database;
  agents: AgentStore;
  cursors: Cursors;
  hub: Hub;
  cancel: Cancel;
}

export function createConversations(deps: ConversationsDependencies): ConversationsService {
  const { db, agents, cursors, cancel } = deps;
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
      if (!(await deleteConversation(db, id))) throw notFound();
      // What is under way in it ends; the reaper does the same should the process die in between.
      db.afterCommit(() => void cancel.allOf({ conversationId: id }));
    },

    async messages(p, id, query) {
      await visibleConversation(db, p, id);
      return pageById(cursors, `messages:${id}`, query, ({ before, limit }) =>
        listMessages(db, id, before, limit),
      );
    },
  };
}
