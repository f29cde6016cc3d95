import { canSeeAgent } from '../domain/access.ts';
import { endsRun, type ConversationEvent } from '../domain/events.ts';
import { invalid } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import type { Principal } from '../domain/nouns.ts';
import { isTerminal } from '../domain/nouns.ts';
import { pageOf, type Cursors } from '../domain/paging.ts';
import type { Database } from '../store/database.ts';
import { endOfRun, eventsBefore, eventsWithin, startOfRun } from '../store/events.ts';
import type { EventScope, EventsService } from './api.ts';
import { follow } from './follow.ts';
import type { Hub } from './hub.ts';
import { createOpenFollows } from './open-follows.ts';
import type { Outcomes } from './outcomes.ts';
import { visibleConversation, visibleRun } from './visible-conversation.ts';

/** A stream reads what it has missed in pages of so many events, and hardly more bytes. */
const PAGE = 500;
const PAGE_BYTES = 128 * 1024;

/** Where a stream begins. */
interface Place {
  conversationId: string;
  after: number;
  opening: ConversationEvent[];
}

export function createEvents(deps: {
  db: Database;
  hub: Hub;
  outcomes: Outcomes;
  cursors: Cursors;
  log: Log;
}): EventsService {
  const { db, hub, outcomes, cursors, log } = deps;
  const openFollows = createOpenFollows(db, log);

  async function check(p: Principal, scope: EventScope) {
    if ('runId' in scope) return visibleRun(db, p, scope.runId);
    const conversation = await visibleConversation(db, p, scope.conversationId);
    return { conversationId: conversation.id, status: null };
  }

  return {
    async list(p, scope, query) {
      await check(p, scope);
      if (query.limit < 1 || query.limit > limits.pageMax) {
        throw invalid('limit', `must be a whole number from 1 to ${limits.pageMax}.`);
      }
      const name = 'runId' in scope ? `events:run:${scope.runId}` : `events:${scope.conversationId}`;
      const before = query.cursor === null ? null : Number(cursors.decode(name, query.cursor));
      const { rows, isCut } = await eventsBefore(db, p, scope, before, query.limit + 1, limits.pageBytes);
      return pageOf(rows, query, (event) => String(event.seq), cursors, name, isCut);
    },

    async after(p, scope, after, limit) {
      await check(p, scope);
      const { events, isAll } = await eventsWithin(db, p, scope, after, limit + 1, limits.pageBytes);
      return { events: events.slice(0, limit), hasMore: !isAll || events.length > limit };
    },

    async follow(p, scope, after, sink, isPatient = false) {
      const runId = 'runId' in scope ? scope.runId : null;
      const from = (runId !== null && justAccepted(p, runId)) || (await place(p, scope, after));
      if (from === null) {
        sink.end();
        return () => {};
      }
      const { conversationId } = from;
      const followed = follow(
        hub,
        {
          conversationId,
          runId,
          isPatient,
          after: Math.max(after, from.after),
          opening: after <= from.after ? from.opening : [],
          read: (cursor) => eventsWithin(db, p, { conversationId }, cursor, PAGE, PAGE_BYTES),
          endsRun: (event: ConversationEvent) => endsRun(event.type),
          onError: (error) =>
            log.error('An event stream could not be read.', { conversationId, error: String(error) }),
        },
        sink,
        () => remove(),
      );
      const remove = openFollows.add({ keyId: p.keyId, conversationId, end: followed.end });
      return followed.stop;
    },
  };

  /** Of a run that this process accepted a moment ago everything is known: its first stream needs no look-up. */
  function justAccepted(p: Principal, runId: string): Place | null {
    const known = outcomes.find(runId);
    if (!known || known.outcome || known.firstSeq === undefined) return null;
    if (!canSeeAgent(p, { id: known.agentId, orgId: known.orgId })) return null;
    return { conversationId: known.conversationId, after: known.firstSeq - 1, opening: known.opening() };
  }

  /** Where to begin; null when the run's end is behind the cursor and nothing will come any more. */
  async function place(p: Principal, scope: EventScope, after: number): Promise<Place | null> {
    const { conversationId, status } = await check(p, scope);
    if (!('runId' in scope)) return { conversationId, after, opening: [] };
    if (status !== null && isTerminal(status) && after >= (await endOfRun(db, scope.runId))) return null;
    // Nothing of a run stands before its first event, so the conversation's past need not be read.
    return { conversationId, after: (await startOfRun(db, scope.runId)) - 1, opening: [] };
  }
}
