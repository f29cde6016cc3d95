import { requireEdit } from '../domain/access.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Agent, Conversation, Principal } from '../domain/nouns.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';
import { forkCut, insertFork, type ForkCut, type ForkTarget } from '../store/forks.ts';
import type { ForkInput, ForksService } from './api.ts';
import { copyLog, requireForkable } from './fork-log.ts';
import { createQueues } from './queues.ts';
import type { SandboxSnapshots } from './snapshots.ts';
import { visibleAgent } from './visible-agent.ts';
import { visibleConversation } from './visible-conversation.ts';

export interface ForksDependencies {
  db: Database;
  agents: AgentStore;
  snapshots: Pick<SandboxSnapshots, 'hold'>;
  /** For tests; those of the domain when left out. */
  most?: { events: number; bytes: number };
}

/** `source` of a conversation that is a fork. */
const SOURCE = 'fork';

/** Conversations that begin as copies of others: whole or not at all. */
export function createForks(deps: ForksDependencies): ForksService {
  const { db, agents, snapshots } = deps;
  const most = deps.most ?? { events: limits.forkEvents, bytes: limits.forkBytes };
  const inOrder = createQueues();

  /** What is to be copied; checks that it may be. */
  async function cutOf(
    conversationId: string,
    messageId: string | undefined,
    whileBusy: boolean,
  ): Promise<ForkCut> {
    const isMessage = messageId === undefined || isId(messageId);
    const cut = isMessage ? await forkCut(db, conversationId, messageId ?? null, whileBusy) : 'no_message';
    if (cut === 'no_message') throw invalid('messageId', 'is no message of this conversation.');
    if (cut === 'busy')
      throw new DomainError(
        'conversation_busy',
        'The conversation has a run that is queued or running; fork it when that has ended.',
      );
    await requireForkable(db, cut, most);
    return cut;
  }

  /** One transaction; one at a time, since each holds a connection for a while. */
  function copy(
    from: Conversation,
    cut: ForkCut,
    target: ForkTarget,
    title: string | undefined,
  ): Promise<void> {
    return inOrder('copies', () =>
      db.tx(async () => {
        const nextSeq = await copyLog(db, cut, target);
        const { conversationId: id, agentId } = target;
        const row = {
          id,
          from: from.id,
          agentId,
          title: title ?? null,
          source: SOURCE,
          nextSeq,
          at: new Date(),
        };
        if (!(await insertFork(db, row))) throw notFound();
      }),
    );
  }

  /** The log and the files are those of one moment, in which no turn of the agent went on: a log only grows. */
  async function withFiles(
    from: Conversation,
    source: Agent,
    target: Agent,
    place: ForkTarget,
    input: ForkInput,
  ) {
    // Before a sandbox is held, or ended where none can be frozen, for what cannot be forked anyway.
    await cutOf(from.id, input.messageId, false);
    const { files, seen: cut } = await snapshots.hold(source, () => cutOf(from.id, input.messageId, false));
    try {
      await files.copyTo(target);
      await copy(from, cut, place, input.title);
    } finally {
      await files.release();
    }
  }

  return {
    async fork(p: Principal, id: string, input: ForkInput) {
      const from = await visibleConversation(db, p, id);
      const { toAgentId = from.agentId } = input;
      const isSame = toAgentId === from.agentId;
      const place = {
        conversationId: newId(),
        agentId: toAgentId,
        keyId: p.keyId,
        keepsDeployments: isSame,
      };
      if (isSame) {
        // All conversations of an agent share its files, so that no turn which goes on is in the way.
        await copy(from, await cutOf(from.id, input.messageId, true), place, input.title);
      } else {
        const target = await visibleAgent(agents, p, toAgentId);
        requireEdit(p);
        await withFiles(from, await visibleAgent(agents, p, from.agentId), target, place, input);
      }
      return visibleConversation(db, p, place.conversationId);
    },
  };
}
