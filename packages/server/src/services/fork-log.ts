import type { ConversationEvent, EventBody } from '../domain/events.ts';
import { DomainError } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import type { Database } from '../store/database.ts';
import { unansweredText } from '../store/events.ts';
import {
  eventsToFork,
  insertForkedEvents,
  insertForkedMessages,
  insertForkedRuns,
  isTooLargeToFork,
  messageIdsToFork,
  runsToFork,
  type EventCopy,
  type ForkCut,
  type ForkedRun,
  type ForkTarget,
} from '../store/forks.ts';
import { forkedEvent, leftOutOfForks, type ForkIds } from './fork-events.ts';

/** Read and written in pages of so much, so that other work goes on in between. */
const PAGE = { limit: 500, maxBytes: 256 * 1024, leftOut: leftOutOfForks };

/** Throws `conflict` when there is more than may be copied: before anything is. */
export async function requireForkable(
  db: Database,
  cut: ForkCut,
  most: { events: number; bytes: number },
): Promise<void> {
  if (!(await isTooLargeToFork(db, cut, most, leftOutOfForks))) return;
  throw new DomainError(
    'conflict',
    `A fork has at most ${most.events} events, of ${most.bytes} bytes together; name an earlier message as messageId.`,
  );
}

/**
 * Copies runs, messages and events up to a cut, without the conversation's own row. Resolves with the seq that comes
 * next. Call it in a transaction.
 */
export async function copyLog(db: Database, cut: ForkCut, target: ForkTarget): Promise<number> {
  const runs = await runsToFork(db, cut);
  const runById = new Map(runs.map((run) => [run.id, run]));
  const messages = await messageIdsToFork(db, cut, [...runById.keys()]);
  const ids = createIds(target, runs, messages);
  /** By old id: where the run begins in the fork. */
  const beginnings = new Map<string, number>();
  let seq = 0;
  for (let after = 0; ;) {
    const events = await eventsToFork(db, cut, { after, ...PAGE });
    if (events.length === 0) break;
    const copies: EventCopy[] = [];
    for (const event of events) {
      const said = await unansweredDelta(db, event, runById.get(event.runId)!, ids);
      for (const body of [said, forkedEvent(event, ids)]) {
        if (body === null) continue;
        seq += 1;
        if (!beginnings.has(event.runId)) beginnings.set(event.runId, seq);
        copies.push({ seq, runId: ids.run(event.runId), at: event.at, body });
      }
    }
    await insertForkedEvents(db, target.conversationId, copies);
    after = events.at(-1)!.seq;
  }
  await insertRows(db, target, { runs, messages, ids, beginnings });
  return seq + 1;
}

async function insertRows(
  db: Database,
  target: ForkTarget,
  from: { runs: ForkedRun[]; messages: string[]; ids: ForkIds; beginnings: Map<string, number> },
): Promise<void> {
  const { ids } = from;
  const runs = from.runs.map(({ id, userMessageId, messageId }) => ({
    from: id,
    id: ids.run(id),
    userMessageId: ids.message(userMessageId),
    messageId: messageId && ids.message(messageId),
    acceptSeq: from.beginnings.get(id)!,
  }));
  const messages = from.messages.map((id) => ({ from: id, id: ids.message(id) }));
  await insertForkedRuns(db, target, runs);
  await insertForkedMessages(db, target, messages, runs);
}

/** Old and new ids are in the same order, since lists are by id. */
function createIds(target: ForkTarget, runs: ForkedRun[], messages: string[]): ForkIds {
  const streamed = runs.flatMap(({ messageId }) => messageId ?? []);
  const runIds = renamed(runs.map(({ id }) => id));
  const messageIds = renamed([...messages, ...streamed]);
  return {
    agentId: target.agentId,
    conversationId: target.conversationId,
    run: runIds,
    message: messageIds,
    deployment: (old) => (target.keepsDeployments ? old : null),
  };
}

function renamed(known: string[]): (old: string) => string {
  const ids = new Map([...new Set(known)].sort().map((old) => [old, newId()]));
  return (old) => {
    const id = ids.get(old) ?? newId();
    ids.set(old, id);
    return id;
  };
}

/**
 * What a turn that ended without a message had said by then, as one delta before its end: nothing else in the log has
 * it, and the next turn is told of it.
 */
async function unansweredDelta(
  db: Database,
  { type, runId }: ConversationEvent,
  run: ForkedRun,
  ids: ForkIds,
): Promise<Extract<EventBody, { type: 'message.delta' }> | null> {
  if ((type !== 'run.failed' && type !== 'run.cancelled') || run.messageId === null) return null;
  const text = (await unansweredText(db, [runId])).get(runId);
  if (!text) return null;
  return {
    type: 'message.delta',
    data: { runId: ids.run(runId), messageId: ids.message(run.messageId), text },
  };
}
