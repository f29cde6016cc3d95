import type { PromptResponse } from '@agentclientprotocol/sdk';
import type { RunError } from '../../domain/errors.ts';
import type { ConversationEvent, EventUsage } from '../../domain/events.ts';
import { formatMicros } from '../../domain/money.ts';
import type { Run } from '../../domain/nouns.ts';
import { runFailed } from './errors.ts';

interface Waiting {
  resolve(response: PromptResponse): void;
  reject(error: Error): void;
}

/** The prompts of a session that wait for the end of their runs. */
export class Prompts {
  readonly #waiting = new Map<string, Waiting[]>();

  has(runId: string): boolean {
    return this.#waiting.has(runId);
  }

  runIds(): string[] {
    return [...this.#waiting.keys()];
  }

  /** One and the same run twice, when a prompt came again. */
  add(runId: string): Promise<PromptResponse> {
    const ended = new Promise<PromptResponse>((resolve, reject) => {
      const waiting = this.#waiting.get(runId) ?? [];
      waiting.push({ resolve, reject });
      this.#waiting.set(runId, waiting);
    });
    // Its session may be gone before anybody waits for it.
    ended.catch(() => undefined);
    return ended;
  }

  ended(event: ConversationEvent): void {
    const { runId } = event;
    switch (event.type) {
      case 'run.completed':
        return this.#end(runId, response('end_turn', runId, event.data.usage));
      case 'run.cancelled':
        return this.#end(runId, response('cancelled', runId, event.data.usage));
      case 'run.failed':
        return this.#end(runId, failed(event.data.error, runId, event.data.usage));
      default:
    }
  }

  /** What `ended` would say, of a run whose events went by. */
  endedAs(run: Run): void {
    const { inputTokens, outputTokens, costMicros } = run.usage;
    const usage = { inputTokens, outputTokens, cost: formatMicros(costMicros) };
    if (run.error) this.#end(run.id, failed(run.error, run.id, usage));
    else this.#end(run.id, response(run.status === 'completed' ? 'end_turn' : 'cancelled', run.id, usage));
  }

  endAll(answer: PromptResponse): void {
    for (const runId of this.runIds()) this.#end(runId, answer);
  }

  #end(runId: string, answer: PromptResponse | Error): void {
    const waiting = this.#waiting.get(runId) ?? [];
    this.#waiting.delete(runId);
    for (const { resolve, reject } of waiting) {
      if (answer instanceof Error) reject(answer);
      else resolve(answer);
    }
  }
}

/** An agent that refuses has ended its turn as it should. */
function failed(error: RunError, runId: string, usage: EventUsage): PromptResponse | Error {
  return error.code === 'refused' ? response('refusal', runId, usage) : runFailed(error);
}

function response(
  stopReason: PromptResponse['stopReason'],
  runId: string,
  usage: EventUsage,
): PromptResponse {
  return { stopReason, _meta: { 'berth.dev': { runId, usage } } };
}
