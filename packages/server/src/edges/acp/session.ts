import type { PromptResponse } from '@agentclientprotocol/sdk';
import { methods } from '@agentclientprotocol/sdk';
import { DomainError } from '../../domain/errors.ts';
import { endsRun, type ConversationEvent } from '../../domain/events.ts';
import { isTerminal } from '../../domain/nouns.ts';
import type { SendInput } from '../../services/api.ts';
import { Asks, isAnswer, isQuestion, type Question } from './asks.ts';
import { readEnd, readRun, readTurns, withoutVoid } from './past.ts';
import type { Place } from './place.ts';
import { Prompts } from './prompts.ts';
import { UpdateMapper } from './updates.ts';

/** A client with so many updates unread is not told more until it has read them. */
const UNREAD_UPDATES = 1_000;

/**
 * A session that a connection has open: it follows its conversation, whoever speaks in it, and tells all as updates. A
 * prompt is a run; its response follows the updates of its run.
 */
export class Session {
  readonly id: string;
  readonly #place: Place;
  readonly #asks: Asks;
  readonly #prompts = new Prompts();
  #mapper = new UpdateMapper();
  /** The last event of the log that was looked at. */
  #cursor = 0;
  #stopFollowing: (() => void) | null = null;
  #isFollowed = false;
  #isOver = false;
  /** While a message is on its way, it is not known which run is its own: what comes meanwhile waits. */
  #sending = 0;
  #held: ConversationEvent[] = [];
  #isCancelWanted = false;
  #isClosed = false;
  /** Runs of the conversation that have not ended, as far as the log was seen. */
  readonly #openRuns = new Set<string>();
  /** Those that were under way when the session was opened: their questions are this client's too. */
  readonly #adopted = new Set<string>();
  readonly #questions = new Map<string, Question>();
  #unread = 0;
  #written: Promise<void> = Promise.resolve();

  constructor(place: Place, id: string) {
    this.#place = place;
    this.id = id;
    this.#asks = new Asks(place, id);
  }

  /** Tells all that was ever said, and then what comes (`session/load`). Call `askAgain` once the client knows of it. */
  async load(): Promise<void> {
    for await (const events of readTurns(this.#place, this.id)) {
      this.#tell(withoutVoid(events));
      await this.#written;
    }
    for (const runId of this.#openRuns) this.#adopted.add(runId);
    await this.#follow();
  }

  /** Tells what comes after an event, or after now (`session/resume`); resolves with the place where it began. */
  async resume(after: number | null): Promise<number> {
    const { lastSeq, openRuns } = await readEnd(this.#place, this.id);
    const begin = Math.min(after ?? lastSeq, lastSeq);
    this.#cursor = begin;
    for (const runId of openRuns) {
      this.#adopted.add(runId);
      for await (const events of readRun(this.#place, runId, begin)) {
        // What the client has seen already: told to nobody, but what comes builds upon it.
        this.#mapper.map(events, () => true);
        for (const event of events) this.#note(event);
      }
    }
    this.#cursor = begin;
    await this.#follow();
    return begin;
  }

  get isPrompted(): boolean {
    return this.#sending > 0 || this.#prompts.runIds().length > 0;
  }

  /** Puts the questions that were open already when the session was opened. */
  askAgain(): void {
    for (const question of this.#questions.values())
      if (this.#isAsked(question.runId)) this.#asks.ask(question);
  }

  /** Resolves with the end of the run, after its updates. */
  async prompt(input: Pick<SendInput, 'content' | 'parts' | 'idempotency'>): Promise<PromptResponse> {
    const { services, caller, agentId } = this.#place;
    this.#sending += 1;
    let ended: Promise<PromptResponse>;
    try {
      const accepted = await services.runs.send(caller, {
        ...input,
        agentId,
        conversationId: this.id,
        mayBegin: true,
        onBusy: 'enqueue',
        source: 'acp',
      });
      if (accepted.conversationId !== this.id)
        throw new DomainError('idempotency_key_reused', 'This key was used for a prompt of another session.');
      const { runId } = accepted;
      ended = this.#prompts.add(runId);
      this.#openRuns.add(runId);
      if (accepted.replayed) await this.#catchUp(runId);
      if (this.#isCancelWanted || this.#isClosed) this.#cancelRun(runId);
      // Nobody listens to its end any more.
      if (this.#isClosed) this.#prompts.endAll({ stopReason: 'cancelled' });
    } finally {
      this.#sending -= 1;
      if (this.#sending === 0) this.#release();
    }
    if (!this.#isFollowed) await this.#follow();
    return ended;
  }

  /** Stops what this client has begun; when that is nothing, whatever is under way here. */
  cancel(): void {
    this.#isCancelWanted = this.#sending > 0;
    const own = this.#prompts.runIds();
    const wanted = own.length > 0 || this.#isCancelWanted ? own : [...this.#openRuns];
    for (const runId of wanted) this.#cancelRun(runId);
  }

  /** Ends it for this connection; what this client has begun is cancelled. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const own = this.#prompts.runIds();
    await Promise.all(own.map((runId) => this.#cancelled(runId)));
    this.leave();
    this.#prompts.endAll({ stopReason: 'cancelled' });
  }

  /** Tells nothing more; what is under way goes on without this client. */
  leave(): void {
    this.#isOver = true;
    this.#stopFollowing?.();
    this.#asks.dropAll();
  }

  async #follow(): Promise<void> {
    if (this.#isOver || this.#isFollowed) return;
    const { services, caller } = this.#place;
    this.#isFollowed = true;
    try {
      const stop = await services.events.follow(caller, { conversationId: this.id }, this.#cursor, {
        write: (events) => this.#write(events),
        drained: () => this.#written,
        end: () => void this.#ended(),
      });
      if (this.#isOver) stop();
      else this.#stopFollowing = stop;
    } catch (error) {
      this.#isFollowed = false;
      // A session in which nothing was said has nothing to follow.
      if (!(error instanceof DomainError) || error.code !== 'not_found') throw error;
    }
  }

  #write(events: ConversationEvent[]): boolean {
    if (this.#isOver) return false;
    if (this.#unread >= UNREAD_UPDATES) {
      this.#isFollowed = false;
      void this.#written.then(() => this.#follow()).catch(() => this.#place.close());
      return false;
    }
    if (this.#sending > 0) this.#held.push(...events);
    else this.#takeAll(events);
    return true;
  }

  #release(): void {
    this.#isCancelWanted = false;
    const held = this.#held;
    this.#held = [];
    this.#takeAll(held);
  }

  /** In pieces that end where a run ends, so that nothing of the next one comes before the response of the first. */
  #takeAll(events: ConversationEvent[]): void {
    let from = 0;
    events.forEach((event, index) => {
      if (!endsRun(event.type) && index < events.length - 1) return;
      const piece = events.slice(from, index + 1);
      from = index + 1;
      this.#tell(piece);
      for (const one of piece) this.#act(one);
    });
  }

  #tell(events: ConversationEvent[]): void {
    const isOwn = (runId: string) => this.#prompts.has(runId);
    for (const { seq, runId, update } of this.#mapper.map(events, isOwn)) {
      this.#unread += 1;
      this.#written = this.#place.client
        .notify(methods.client.session.update, {
          sessionId: this.id,
          update,
          _meta: { 'berth.dev': { seq, runId } },
        })
        // The connection is gone, and with it the session.
        .catch(() => undefined)
        .finally(() => (this.#unread -= 1));
    }
    for (const event of events) this.#note(event);
  }

  #note(event: ConversationEvent): void {
    this.#cursor = event.seq;
    if (event.type === 'run.queued') this.#openRuns.add(event.runId);
    else if (isQuestion(event)) this.#questions.set(event.data.requestId, event);
    else if (isAnswer(event)) this.#questions.delete(event.data.requestId);
    else if (endsRun(event.type)) {
      this.#openRuns.delete(event.runId);
      for (const [requestId, { runId }] of this.#questions)
        if (runId === event.runId) this.#questions.delete(requestId);
    }
  }

  #act(event: ConversationEvent): void {
    if (isQuestion(event)) {
      if (this.#isAsked(event.runId)) this.#asks.ask(event);
    } else if (isAnswer(event)) this.#asks.drop(event.data.requestId);
    else if (endsRun(event.type)) {
      this.#adopted.delete(event.runId);
      this.#prompts.ended(event);
    }
  }

  #isAsked(runId: string): boolean {
    return this.#prompts.has(runId) || this.#adopted.has(runId);
  }

  /** A prompt that came again: its run may have ended before what this session looks at. */
  async #catchUp(runId: string): Promise<void> {
    const { services, caller } = this.#place;
    const run = await services.runs.get(caller, runId);
    if (!isTerminal(run.status)) return;
    const { items } = await services.events.list(caller, { runId }, { limit: 1, cursor: null });
    if ((items[0]?.seq ?? 0) <= this.#cursor) this.#prompts.endedAs(run);
  }

  #cancelRun(runId: string): void {
    this.#cancelled(runId).catch((error: unknown) => {
      this.#place.log.warn('A run could not be cancelled.', { runId, error: String(error) });
    });
  }

  /** Also when it has ended, or is gone. */
  async #cancelled(runId: string): Promise<void> {
    const { services, caller } = this.#place;
    await services.runs.cancel(caller, runId).catch((error: unknown) => {
      if (!(error instanceof DomainError) || !['conflict', 'not_found'].includes(error.code)) throw error;
    });
  }

  /** The conversation was deleted; or the key was revoked, or the service ends: then another connection can go on. */
  async #ended(): Promise<void> {
    if (this.#isOver) return;
    const { services, caller, agentId, close } = this.#place;
    this.#isFollowed = false;
    const isDeleted = await services.acpSessions.get(caller, agentId, this.id).then(
      () => false,
      (error: unknown) => error instanceof DomainError && error.code === 'not_found',
    );
    if (!isDeleted) return close();
    this.leave();
    this.#prompts.endAll({ stopReason: 'cancelled' });
  }
}
