import { setTimeout as delay } from 'node:timers/promises';
import type { ConversationEvent } from '../domain/events.ts';
import type {
  Answer,
  AnswerStream,
  ChannelKind,
  ChannelSetup,
  SendOutcome,
} from '../domain/ports/channel.ts';
import { UrlRefused } from '../domain/url-guard.ts';
import type { DueEvent } from '../store/inbound-queue.ts';
import type { EventSink, EventsService } from './api.ts';
import { arrived, attempt, CannotSay } from './channel-answer.ts';
import { CallNotSent } from './guarded-call.ts';
import { principalOf, unanswered, type InboundWorkDependencies } from './inbound-terms.ts';

interface Dependencies extends Pick<
  InboundWorkDependencies,
  'queue' | 'answers' | 'setups' | 'kinds' | 'caller' | 'nodeId' | 'log'
> {
  events: Pick<EventsService, 'follow' | 'after'>;
}

/** What is over so soon is not worth two calls. */
const firstAfterMs = 400;
const callTimeoutMs = 10_000;
/** Longer than a call takes: nobody else ends the turn while one of ours may still arrive. */
const holdMs = 30_000;
const holdEveryMs = 10_000;
/** Without a word of the provider, after it took no call. */
const restMs = 30_000;
/** More than the first message of any provider holds. */
const maxChars = 20_000;
const page = 500;

export type AnswerStreams = ReturnType<typeof createAnswerStreams>;

/** Shows answers while the agent speaks, where the channel wants that. What is said in the end is not theirs. */
export function createAnswerStreams(deps: Dependencies) {
  const { queue, answers, caller, events, log } = deps;
  const paces = createPaces();
  const stopped = new AbortController();
  const underWay = new Set<Promise<void>>();

  /** How the channel shows what grows; null: not at all. */
  async function growthOf(due: DueEvent): Promise<Pick<Growing, 'kind' | 'stream' | 'setup'> | null> {
    if (due.replyTo === null || due.replyTo['sample'] === unanswered['sample']) return null;
    const found = await deps.setups.open(due.channelId);
    const kind = found && deps.kinds[found.row.kind];
    if (!found || !kind?.stream?.isOn(found.setup)) return null;
    return { kind, stream: kind.stream, setup: found.setup };
  }

  async function show(due: DueEvent, runId: string, over: AbortSignal): Promise<void> {
    const growth = over.aborted ? null : await growthOf(due);
    if (growth === null) return;
    // As long as this process shows it, no other one finds the turn and shows it too.
    const hold = () => queue.holdTurn(due.id, deps.nodeId, holdMs);
    await hold();
    const held = setInterval(() => void hold().catch(() => undefined), holdEveryMs);
    held.unref();
    try {
      const begun = await begunBefore(due, growth);
      if (begun === 'over') return;
      const said = new Said();
      const stop = await events.follow(principalOf(due), { runId }, 0, said);
      over.addEventListener('abort', () => said.end(), { once: true });
      if (over.aborted) said.end();
      try {
        await grow({ due, ...growth, said, over }, begun);
      } finally {
        stop();
      }
    } finally {
      clearInterval(held);
      if (stopped.signal.aborted) await queue.letGoTurn(due.id, deps.nodeId);
    }
  }

  /** The name of the message that a process before this one has begun; null: there is none. What nobody finds is left to the end. */
  async function begunBefore(
    due: DueEvent,
    { stream, setup, kind }: Pick<Growing, 'kind' | 'stream' | 'setup'>,
  ): Promise<string | null | 'over'> {
    const row = (await answers.answers(due.id)).get(0);
    if (!row) return null;
    if (row.state !== 'sending') return 'over';
    if (row.externalId !== null) return row.externalId;
    const found = await find(due, row.beganAt, { stream, setup, kind });
    if (!found?.isGrowing) return 'over';
    await answers.putAnswer(due.id, 0, 'sending', found.externalId);
    return found.externalId;
  }

  /** The message of an answer that nobody heard of. */
  async function find(
    due: DueEvent,
    beganAt: Date,
    { stream, setup, kind }: Pick<Growing, 'kind' | 'stream' | 'setup'>,
  ): Promise<ReturnType<AnswerStream['find']>> {
    const answer = answerOf(due, '');
    for await (const reply of arrived(caller, stream.lookup(answer, setup), kind, beganAt)) {
      const found = stream.find(reply, answer);
      if (found) return found;
    }
    return null;
  }

  /** What nobody can find cannot be ended. */
  const findIfSaid: typeof find = (...asked) =>
    find(...asked).catch((error: unknown) => {
      if (error instanceof CannotSay) return null;
      throw error;
    });

  async function grow(growing: Growing, begun: string | null): Promise<void> {
    const { due, stream, said, over } = growing;
    let externalId = begun;
    let shown = '';
    while (await said.isMoreThan(shown)) {
      if (externalId === null) await pause(firstAfterMs, over);
      await paces.turn(due.channelId, stream.intervalMs, over);
      if (over.aborted) return;
      // Others look at the event now and then; they are done in a moment. One that has begun to show it keeps it.
      if (!(await queue.holdTurn(due.id, deps.nodeId, holdMs))) continue;
      const { text } = said;
      const next: string =
        externalId === null ? await begin(growing, text) : await change(growing, text, externalId);
      if (next === 'over') return;
      if (next === 'later') continue;
      externalId = next;
      shown = text;
    }
  }

  /** The name of the message, once it is there. */
  async function begin(growing: Growing, text: string): Promise<string | 'later' | 'over'> {
    const { due, kind, stream, setup } = growing;
    const call = stream.start(answerOf(due, text), setup);
    if (call === null) return text.trim() === '' ? 'later' : 'over';
    // Durable before the call, so that whoever comes after a crash looks for it.
    await answers.putAnswer(due.id, 0, 'sending', null);
    try {
      const reply = await caller.call(call, { timeoutMs: callTimeoutMs });
      const outcome = kind.readReply(reply);
      if (outcome.outcome === 'sent') {
        if (outcome.externalId === null) return 'over';
        await answers.putAnswer(due.id, 0, 'sending', outcome.externalId);
        return outcome.externalId;
      }
      const isUntaken = outcome.outcome === 'failed' || ('isTooMany' in outcome && outcome.isTooMany);
      // Whether it is there shows at the end.
      if (!isUntaken) return 'over';
      await answers.removeAnswer(due.id, 0);
      if (outcome.outcome === 'failed') return 'over';
      paces.rest(due.channelId, outcome.outcome === 'retry' ? (outcome.afterMs ?? restMs) : restMs);
      return 'later';
    } catch (error) {
      if (error instanceof UrlRefused || error instanceof CallNotSent) await answers.removeAnswer(due.id, 0);
      return 'over';
    }
  }

  async function change(
    growing: Growing,
    text: string,
    externalId: string,
  ): Promise<string | 'later' | 'over'> {
    const { due, kind, stream, setup } = growing;
    try {
      const call = stream.update(answerOf(due, text), externalId, setup);
      const outcome = kind.readReply(await caller.call(call, { timeoutMs: callTimeoutMs }));
      if (outcome.outcome === 'sent') return externalId;
      if (outcome.outcome !== 'retry') return 'over';
      paces.rest(due.channelId, outcome.afterMs ?? restMs);
    } catch {
      paces.rest(due.channelId, restMs);
    }
    return 'later';
  }

  return {
    /** Whether it is worth to follow the turn of an event for its answer alone. */
    grows: async (due: DueEvent): Promise<boolean> => (await growthOf(due)) !== null,

    /** Until `over`; resolves when none of its calls is under way. Never rejects. */
    async show(due: DueEvent, runId: string, over: AbortSignal): Promise<void> {
      const shown = show(due, runId, AbortSignal.any([over, stopped.signal])).catch((error: unknown) =>
        log.debug('An answer is not shown before its end.', { eventId: due.id, error }),
      );
      underWay.add(shown);
      await shown;
      underWay.delete(shown);
    },

    /** Shows nothing any more; resolves when none of its calls is under way. */
    async stop(): Promise<void> {
      stopped.abort();
      await Promise.all(underWay);
    },

    /** Ends a message that has begun to grow and gets no whole answer. Null: there is none, and nothing to do. */
    async breakOff(
      due: DueEvent,
      runId: string,
      kind: ChannelKind,
      setup: ChannelSetup,
      isGivenUp: AbortSignal,
    ): Promise<SendOutcome | null> {
      const row = (await answers.answers(due.id)).get(0);
      if (!kind.stream || row?.state !== 'sending' || due.replyTo === null) return null;
      const answer = answerOf(due, '');
      const { stream } = kind;
      const found =
        row.externalId === null ? await findIfSaid(due, row.beganAt, { stream, setup, kind }) : null;
      const externalId = row.externalId ?? found?.externalId;
      if (externalId !== undefined) {
        const text = await textOf(events, due, runId);
        isGivenUp.throwIfAborted();
        const call = kind.stream.breakOff({ ...answer, text }, externalId, setup);
        const outcome = await attempt(caller, { call, repeat: 'same', lookup: null }, kind);
        if (outcome.outcome === 'retry') return outcome;
      }
      // Should somebody replay the event, its answer is another message.
      await answers.removeAnswer(due.id, 0);
      return { outcome: 'sent', externalId: externalId ?? null };
    },
  };
}

interface Growing {
  due: DueEvent;
  kind: ChannelKind;
  stream: AnswerStream;
  setup: ChannelSetup;
  said: Said;
  over: AbortSignal;
}

const answerOf = (due: DueEvent, text: string): Answer => ({
  text,
  replyTo: due.replyTo!,
  outboxId: due.id,
});

/** What a run has said so far, by its log. */
class Said implements EventSink {
  text = '';
  #isOver = false;
  #wake: (() => void) | null = null;

  write(events: ConversationEvent[]): boolean {
    for (const event of events) this.text = after(this.text, event);
    this.#wake?.();
    return true;
  }

  async drained(): Promise<void> {}

  end(): void {
    this.#isOver = true;
    this.#wake?.();
  }

  /** Resolves when there is another text than `shown`, or with false when none will come. */
  async isMoreThan(shown: string): Promise<boolean> {
    while (!this.#isOver && (this.text === shown || this.text.trim() === '')) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    return !this.#isOver;
  }
}

function after(text: string, event: ConversationEvent): string {
  if (event.type === 'message.delta') return text.length > maxChars ? text : text + event.data.text;
  // Another attempt begins from nothing.
  return event.type === 'run.retrying' ? '' : text;
}

async function textOf(events: Pick<EventsService, 'after'>, due: DueEvent, runId: string): Promise<string> {
  let text = '';
  let seq = 0;
  for (let hasMore = true; hasMore;) {
    const found = await events.after(principalOf(due), { runId }, seq, page);
    for (const event of found.events) text = after(text, event);
    seq = found.events.at(-1)?.seq ?? seq;
    hasMore = found.hasMore && found.events.length > 0;
  }
  return text;
}

/** When each channel may be called next: all of its answers share what the provider allows. */
function createPaces() {
  const nextAtMs = new Map<string, number>();
  return {
    async turn(channelId: string, intervalMs: number, over: AbortSignal): Promise<void> {
      while (!over.aborted) {
        const waitMs = (nextAtMs.get(channelId) ?? 0) - Date.now();
        if (waitMs <= 0) break;
        await pause(waitMs, over);
      }
      // What has passed says nothing any more.
      if (nextAtMs.size > 10_000) nextAtMs.clear();
      if (!over.aborted) nextAtMs.set(channelId, Date.now() + intervalMs);
    },
    rest(channelId: string, ms: number): void {
      nextAtMs.set(channelId, Math.max(nextAtMs.get(channelId) ?? 0, Date.now() + ms));
    },
  };
}

/** Resolves after so long, or when it is over. */
const pause = (ms: number, over: AbortSignal): Promise<void> =>
  delay(ms, undefined, { signal: over }).catch(() => undefined);
