import type { RunError } from '../domain/errors.ts';
import type { ModelUsage } from '../domain/ports/model-gateway.ts';
import type { RunUsage, TerminalStatus } from '../domain/nouns.ts';
import type { Claim, GivenUp, LedgerRow, RunLife, RunWriter } from '../services/run-life.ts';
import { Questions } from './questions.ts';
import { TurnLog, type RestoredLog } from './turn-log.ts';
import { UsageEvents } from './usage-events.ts';

/** Why a turn is stopped before its harness has ended it. */
export type StopReason = 'cancel' | 'timeout' | 'lost' | 'drain';

/** One attempt of a run: what it has written, what it has used, and how to stop it. */
export class Turn {
  readonly claim: Claim;
  readonly writer: RunWriter;
  readonly log: TurnLog;
  readonly #life: RunLife;
  readonly #stop = new AbortController();
  readonly #deadline: NodeJS.Timeout;
  readonly #usage: RunUsage;
  readonly #usageEvents: UsageEvents;
  questions: Questions | null = null;
  stopReason: StopReason | null = null;
  isOver = false;
  /** Its harness has shown that it has the prompt. Until then nothing can have been done that another attempt does again. */
  isBegun: boolean;

  /** `restored`: of an attempt that an earlier process of the service began. */
  constructor(life: RunLife, claim: Claim, restored?: RestoredLog) {
    this.#life = life;
    this.claim = claim;
    // What an earlier process has seen of it is not known.
    this.isBegun = restored !== undefined;
    this.writer = life.open(claim);
    const { runId, messageId, conversationId, inputTokens, outputTokens, costMicros } = claim;
    this.#usage = { inputTokens, outputTokens, costMicros };
    this.log = new TurnLog({
      runId,
      messageId,
      append: (...events) => this.writer.append(...events),
      isWatched: () => life.isWatched(conversationId),
      told: (position) => this.writer.told(position),
      ...(restored && { restored }),
    });
    this.#usageEvents = new UsageEvents(runId, (...events) => this.writer.append(...events));
    this.writer.lost.addEventListener('abort', () => this.stop('lost'), { once: true });
    const leftMs = Math.max(0, claim.deadlineAt.getTime() - Date.now());
    this.#deadline = setTimeout(() => this.stop('timeout'), Math.min(leftMs, 2 ** 31 - 1));
  }

  /** Aborts when the turn is to be stopped. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** The first reason counts, except that nothing may be written for a run that is lost. */
  stop(reason: StopReason): void {
    if (this.isOver || this.stopReason === 'lost') return;
    if (this.stopReason === null || reason === 'lost') this.stopReason = reason;
    this.#stop.abort();
    void this.questions?.close();
  }

  addUsage(rows: LedgerRow[], usage: Pick<ModelUsage, 'model' | 'entries'>): void {
    for (const row of rows) {
      if (row.meter === 'model.output_tokens') this.#usage.outputTokens += row.quantity;
      else if (row.meter.startsWith('model.')) this.#usage.inputTokens += row.quantity;
      this.#usage.costMicros += BigInt(row.cost_micros);
    }
    // The money was spent whatever became of the run. What was set aside for it ends with its rows: those hurry.
    const isUrgent = rows.some((row) => row.reservation_id !== null);
    const events = this.isOver ? [] : this.#usageEvents.take(usage);
    this.writer.addUsage(rows, events, { isUrgent, isJoined: this.#usageEvents.isJoining });
  }

  /** Resolves when everything told so far is durable; rejects when the run is another owner's by now. */
  async recorded(): Promise<void> {
    this.log.flush();
    await this.writer.flushed();
    this.writer.lost.throwIfAborted();
  }

  async settle(
    status: TerminalStatus,
    error: RunError | null,
    reply: 'message' | 'task' = 'task',
  ): Promise<void> {
    await this.#end();
    if (status !== 'completed') this.log.finishTools(status === 'cancelled' ? 'cancelled' : 'unknown');
    const { content, artifactIds } = this.log;
    const message = status === 'completed' ? { id: this.claim.messageId, content, artifactIds } : null;
    await this.#life.settle(this.writer, { status, error, message, reply, usage: { ...this.#usage } });
  }

  /** This attempt is over, the run may not be. */
  async giveUp(givenUp: GivenUp): Promise<void> {
    await this.#end();
    await this.writer.flushed();
    await this.#life.endAttempt(this.claim, givenUp);
  }

  /**
   * This process has no more to do with it: it goes on in its sandbox, and the next process of the node takes it up.
   * Resolves when all that was told is durable. Its harness is not listened to any more.
   */
  async leave(): Promise<void> {
    this.log.close();
    this.#usageEvents.close();
    this.isOver = true;
    clearTimeout(this.#deadline);
    await this.writer.flushed();
  }

  /** Without a trace: the run is another owner's. */
  async abandon(): Promise<void> {
    await this.#end();
  }

  async #end(): Promise<void> {
    await this.questions?.close();
    this.log.close();
    this.#usageEvents.close();
    this.isOver = true;
    clearTimeout(this.#deadline);
  }
}
