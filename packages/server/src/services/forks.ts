import { requireEdit } from '../domain/access.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Agent, Conversation, Principal } from '../domain/nouns.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';
import { discardFork, forkCut, insertFork, type ForkCut, type ForkTarget } from '../store/forks.ts';
import type { ForkInput, ForksService } from './api.ts';
import { copyLog } from './fork-log.ts';
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

/**
 * Conversations that begin as copies of others. All is copied under ids of the fork's own before the row of its
 * conversation is there, and nothing is seen without that row: a fork appears whole or not at all.
 */
export function createForks(deps: ForksDependencies): ForksService {
  const { db, agents, snapshots } = deps;
  const most = deps.most ?? { events: limits.forkEvents, bytes: limits.forkBytes };
  /** One copy at a time: each holds a connection for a while. */
  const inOrder = createQueues();

  async function cutOf(conversationId: string, messageId: string | undefined): Promise<ForkCut> {
    const isMessage = messageId === undefined || isId(messageId);
    const cut = isMessage ? await forkCut(db, conversationId, messageId ?? null) : 'no_message';
    if (cut === 'no_message') throw invalid('messageId', 'is no message of this conversation.');
    if (cut === 'busy')
      throw new DomainError(
        'conversation_busy',
        'The conversation has a run that is queued or running; fork it when that has ended.',
      );
    return cut;
  }

  const copying = <T>(work: () => Promise<T>) => inOrder('copies', () => db.tx(work));

  async function appear(from: Conversation, place: ForkTarget, nextSeq: number, title?: string) {
    const { conversationId: id, agentId } = place;
    const row = { id, from: from.id, agentId, title: title ?? null, source: SOURCE, nextSeq, at: new Date() };
    if (!(await insertFork(db, row))) throw notFound();
  }

  /** Of the same agent, whose files are there for all its conversations. */
  async function alone(from: Conversation, place: ForkTarget, { messageId, title }: ForkInput) {
    await copying(async () => {
      const nextSeq = await copyLog(db, await cutOf(from.id, messageId), place, most);
      await appear(from, place, nextSeq, title);
    });
  }

  /** The log and the files are those of one moment, in which no turn of the agent went on. */
  async function withFiles(
    from: Conversation,
    place: ForkTarget,
    source: Agent,
    target: Agent,
    input: ForkInput,
  ) {
    const { files, seen: cut } = await snapshots.hold(source, () => cutOf(from.id, input.messageId));
    try {
      const nextSeq = await copying(() => copyLog(db, cut, place, most));
      await files.copyTo(target);
      await appear(from, place, nextSeq, input.title);
    } catch (error) {
      await discardFork(db, place.conversationId);
      throw error;
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
        await alone(from, place, input);
      } else {
        const target = await visibleAgent(agents, p, toAgentId);
        requireEdit(p);
        await withFiles(from, place, await visibleAgent(agents, p, from.agentId), target, input);
      }
      return visibleConversation(db, p, place.conversationId);
    },
  };
}
