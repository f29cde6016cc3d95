import { requireEdit } from '../../src/domain/access.ts';
import type { ConversationEvent, EventBody } from '../../src/domain/events.ts';
import { endsRun } from '../../src/domain/events.ts';
import { notFound } from '../../src/domain/errors.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Conversation, Message, Principal, Run } from '../../src/domain/nouns.ts';
import { isTerminal } from '../../src/domain/nouns.ts';
import type {
  AgentsService,
  ConversationsService,
  EventScope,
  EventSink,
  EventsService,
  RunsService,
  SendInput,
} from '../../src/services/api.ts';

interface Follower {
  conversationId: string;
  runId: string | null;
  sink: EventSink;
}

export interface MemoryCore {
  conversations: ConversationsService;
  runs: RunsService;
  events: EventsService;
  /** What was sent, in order. */
  sends: SendInput[];
  /** Runs whose cancel was asked for. */
  cancelled: string[];
  followers: Set<Follower>;
  /** Appends an event to the run's conversation and tells the followers. */
  append(runId: string, body: EventBody): void;
  /** Settles a run: `completed` with a message, or as given. */
  settle(runId: string, end: { message: string } | Partial<Run>): void;
  run(runId: string): Run;
}

/** Conversations, runs and events in memory, with the visibility rules of the real ones, to test the edges alone. */
export function memoryCore(agents: AgentsService): MemoryCore {
  const conversations = new Map<string, Conversation>();
  const runs = new Map<string, Run>();
  const messages: Message[] = [];
  const log: ConversationEvent[] = [];
  const followers = new Set<Follower>();
  const waiters = new Set<() => void>();
  const sends: SendInput[] = [];
  const cancelled: string[] = [];
  const replays = new Map<string, string>();

  async function visible<T extends { agentId: string }>(p: Principal, item: T | undefined): Promise<T> {
    if (!item) throw notFound();
    await agents.get(p, item.agentId);
    return item;
  }
  const scopeOf = async (p: Principal, scope: EventScope) => {
    if ('runId' in scope) {
      const run = await visible(p, runs.get(scope.runId));
      return { conversationId: run.conversationId, runId: run.id };
    }
    const conversation = await visible(p, conversations.get(scope.conversationId));
    return { conversationId: conversation.id, runId: null };
  };
  const matching = (at: { conversationId: string; runId: string | null }) =>
    log.filter((e) => e.conversationId === at.conversationId && (!at.runId || e.runId === at.runId));
  const page = <T>(items: T[], limit: number) => ({
    items: items.toReversed().slice(0, limit),
    nextCursor: items.length > limit ? 'more' : null,
  });

  function append(runId: string, body: EventBody): void {
    const { conversationId } = runs.get(runId)!;
    const seq = matching({ conversationId, runId: null }).length + 1;
    const event = { ...body, conversationId, runId, seq, at: new Date() } as ConversationEvent;
    log.push(event);
    for (const follower of followers) {
      if (follower.conversationId !== conversationId) continue;
      if (follower.runId && follower.runId !== runId) continue;
      if (!follower.sink.write([event])) followers.delete(follower);
      else if (follower.runId && endsRun(event.type)) follower.sink.end();
    }
  }

  function settle(runId: string, end: { message: string } | Partial<Run>): void {
    const run = runs.get(runId)!;
    const usage = { inputTokens: 0, outputTokens: 0, cost: '0.000000' };
    if ('message' in end) {
      const { agentId, conversationId } = run;
      const message: Message = {
        id: newId(),
        agentId,
        conversationId,
        runId,
        role: 'assistant',
        content: end.message,
        extras: null,
        artifactIds: [],
        createdAt: new Date(),
      };
      messages.push(message);
      Object.assign(run, { status: 'completed', endedAt: new Date() });
      append(runId, { type: 'run.completed', data: { runId, messageId: message.id, reply: 'task', usage } });
    } else {
      Object.assign(run, { endedAt: new Date() }, end);
      if (run.status === 'failed')
        append(runId, { type: 'run.failed', data: { runId, error: run.error!, usage } });
      if (run.status === 'cancelled') append(runId, { type: 'run.cancelled', data: { runId, usage } });
    }
    for (const wake of waiters) wake();
  }

  return {
    sends,
    cancelled,
    followers,
    append,
    settle,
    run: (runId) => runs.get(runId)!,
    conversations: {
      async listForAgent(p, agentId, query) {
        await agents.get(p, agentId);
        return page(
          [...conversations.values()].filter((c) => c.agentId === agentId),
          query.limit,
        );
      },
      get: (p, id) => visible(p, conversations.get(id)),
      async remove(p, id) {
        await visible(p, conversations.get(id));
        requireEdit(p);
        conversations.delete(id);
      },
      async messages(p, id, query) {
        await visible(p, conversations.get(id));
        return page(
          messages.filter((m) => m.conversationId === id),
          query.limit,
        );
      },
    },
    runs: {
      async sendAfter(p, afterRunId, input) {
        const { conversationId } = await visible(p, runs.get(afterRunId));
        const newest = [...runs.values()].findLast((run) => run.conversationId === conversationId);
        return newest?.id === afterRunId ? this.send(p, { ...input, conversationId }) : null;
      },
      async send(p, input) {
        const agent = await agents.get(p, input.agentId);
        const replayKey = input.idempotency && `${p.keyId} ${input.idempotency.key}`;
        const first = replayKey ? replays.get(replayKey) : undefined;
        if (first) {
          const run = runs.get(first)!;
          return { runId: run.id, conversationId: run.conversationId, agentId: run.agentId, replayed: true };
        }
        sends.push(input);
        const conversation = input.conversationId
          ? await visible(p, conversations.get(input.conversationId))
          : {
              id: newId(),
              agentId: agent.id,
              orgId: agent.orgId,
              title: input.content.slice(0, 80),
              source: input.source,
              createdAt: new Date(),
              lastMessageAt: new Date(),
            };
        conversations.set(conversation.id, conversation);
        const runId = newId();
        runs.set(runId, {
          id: runId,
          agentId: agent.id,
          orgId: agent.orgId,
          conversationId: conversation.id,
          deploymentId: null,
          status: 'queued',
          attempt: 0,
          error: null,
          usage: { inputTokens: 3, outputTokens: 5, costMicros: 1250n },
          createdAt: new Date(),
          startedAt: null,
          endedAt: null,
        });
        if (replayKey) replays.set(replayKey, runId);
        append(runId, { type: 'run.queued', data: { runId, messageId: newId() } });
        return { runId, conversationId: conversation.id, agentId: agent.id, replayed: false };
      },
      get: (p, id) => visible(p, runs.get(id)),
      async listForAgent(p, agentId, query) {
        await agents.get(p, agentId);
        return page(
          [...runs.values()].filter((run) => run.agentId === agentId),
          query.limit,
        );
      },
      async cancel(p, id) {
        const run = await visible(p, runs.get(id));
        cancelled.push(id);
        settle(id, { status: 'cancelled' });
        return run;
      },
      respond: (p, id) => visible(p, runs.get(id)),
      async questions(p, id) {
        await visible(p, runs.get(id));
        return [];
      },
      async asked(p, id) {
        await visible(p, runs.get(id));
        return { open: [], isRepeated: false };
      },
      async artifacts(p, id) {
        await visible(p, runs.get(id));
        return [];
      },
      async outcome(p, id, waitMs, signal) {
        const run = await visible(p, runs.get(id));
        if (!isTerminal(run.status) && waitMs > 0) {
          await new Promise<void>((resolve) => {
            const done = () => {
              waiters.delete(check);
              clearTimeout(timer);
              resolve();
            };
            const check = () => {
              if (isTerminal(run.status)) done();
            };
            const timer = setTimeout(done, waitMs);
            waiters.add(check);
            signal?.addEventListener('abort', done);
          });
        }
        return { run, message: messages.find((m) => m.runId === id) ?? null };
      },
    },
    events: {
      async list(p, scope, query) {
        return page(matching(await scopeOf(p, scope)), query.limit);
      },
      async after(p, scope, after, limit) {
        const found = matching(await scopeOf(p, scope)).filter((e) => e.seq > after);
        return { events: found.slice(0, limit), hasMore: found.length > limit };
      },
      async follow(p, scope, after, sink) {
        const at = await scopeOf(p, scope);
        const past = matching(at).filter((e) => e.seq > after);
        if (past.length > 0) sink.write(past);
        const follower: Follower = { ...at, sink };
        followers.add(follower);
        if (at.runId && isTerminal(runs.get(at.runId)!.status)) sink.end();
        return () => void followers.delete(follower);
      },
    },
  };
}
