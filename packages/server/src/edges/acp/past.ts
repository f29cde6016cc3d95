import type { ConversationEvent } from '../../domain/events.ts';
import { endsRun } from '../../domain/events.ts';
import type { EventScope } from '../../services/api.ts';
import type { Place } from './place.ts';

const PAGE = 500;
/** So many events of one turn are looked at together, to leave out what a later attempt of it has made void. */
const TURN_EVENTS_MAX = 5_000;

/** The log of a conversation from its first event on, in pieces that hold whole turns as far as those fit. */
export async function* readTurns(place: Place, conversationId: string): AsyncGenerator<ConversationEvent[]> {
  let waiting: ConversationEvent[] = [];
  let after = 0;
  for (;;) {
    const page = await pageAfter(place, { conversationId }, after);
    if (page.length === 0) break;
    after = page.at(-1)!.seq;
    waiting.push(...page);
    const whole = waiting.findLastIndex((event) => endsRun(event.type)) + 1;
    const count = whole === 0 && waiting.length >= TURN_EVENTS_MAX ? waiting.length : whole;
    if (count > 0) yield waiting.slice(0, count);
    waiting = waiting.slice(count);
  }
  if (waiting.length > 0) yield waiting;
}

/** The events of a run up to a place in the log. */
export async function* readRun(
  place: Place,
  runId: string,
  upTo: number,
): AsyncGenerator<ConversationEvent[]> {
  let after = 0;
  while (after < upTo) {
    const page = await pageAfter(place, { runId }, after);
    if (page.length === 0) return;
    after = page.at(-1)!.seq;
    yield page.filter((event) => event.seq <= upTo);
  }
}

/** Where the log ends, and which runs seem to be under way there. */
export async function readEnd(
  place: Place,
  conversationId: string,
): Promise<{ lastSeq: number; openRuns: Set<string> }> {
  const { items } = await place.services.events.list(
    place.caller,
    { conversationId },
    { limit: 100, cursor: null },
  );
  const ended = new Set<string>();
  const openRuns = new Set<string>();
  for (const { type, runId } of items) {
    if (endsRun(type)) ended.add(runId);
    // What a turn used may be told after its end.
    else if (type !== 'usage.recorded' && !ended.has(runId)) openRuns.add(runId);
  }
  return { lastSeq: items[0]?.seq ?? 0, openRuns };
}

/** Leaves out what a later attempt of its turn has made void: text, and what was made beside it. */
export function withoutVoid(events: ConversationEvent[]): ConversationEvent[] {
  const messages = new Set<string>();
  const lastRetry = new Map<string, number>();
  for (const event of events) {
    if (event.type !== 'run.retrying') continue;
    lastRetry.set(event.runId, event.seq);
    if (event.data.discardedMessageId !== null) messages.add(event.data.discardedMessageId);
  }
  return events.filter((event) => {
    if (event.type === 'message.delta') return !messages.has(event.data.messageId);
    return event.type !== 'artifact.updated' || event.seq > (lastRetry.get(event.runId) ?? 0);
  });
}

async function pageAfter(place: Place, scope: EventScope, after: number): Promise<ConversationEvent[]> {
  return (await place.services.events.after(place.caller, scope, after, PAGE)).events;
}
