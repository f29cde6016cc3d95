import type { PermissionOptionKind, RequestPermissionResponse } from '@agentclientprotocol/sdk';
import { methods, RequestError } from '@agentclientprotocol/sdk';
import { DomainError } from '../../domain/errors.ts';
import type { ConversationEvent } from '../../domain/events.ts';
import type { Place } from './place.ts';

type PermissionRequested = Extract<ConversationEvent, { type: 'permission.requested' }>;
export type Question = PermissionRequested;

/**
 * Questions of running turns that were put to this client. Others may be asked the same by their own surface: the first
 * answer counts, and the client is told that it need not answer any more.
 */
export class Asks {
  readonly #place: Place;
  readonly #sessionId: string;
  readonly #open = new Map<string, AbortController>();

  constructor(place: Place, sessionId: string) {
    this.#place = place;
    this.#sessionId = sessionId;
  }

  /** Not twice. */
  ask(question: Question): void {
    const { requestId } = question.data;
    if (this.#open.has(requestId)) return;
    const stop = new AbortController();
    this.#open.set(requestId, stop);
    this.#permission(question, stop.signal)
      .catch((error: unknown) => this.#failed(question, error, stop.signal))
      .catch((error: unknown) => {
        const { log, requestId: connection } = this.#place;
        log.warn('An answer of a client could not be taken.', {
          requestId: connection,
          error: String(error),
        });
      })
      .finally(() => this.#open.delete(requestId));
  }

  /** It was answered elsewhere, or its turn has ended. */
  drop(requestId: string): void {
    this.#open.get(requestId)?.abort();
  }

  dropAll(): void {
    for (const stop of this.#open.values()) stop.abort();
  }

  async #permission({ runId, data }: PermissionRequested, signal: AbortSignal): Promise<void> {
    const { client, services, caller } = this.#place;
    const answer: RequestPermissionResponse = await client.request(
      methods.client.session.requestPermission,
      {
        sessionId: this.#sessionId,
        toolCall: { toolCallId: data.toolCallId, title: data.title },
        options: data.options.map(({ optionId, name, kind }) => ({ optionId, name, kind: kindOf(kind) })),
        _meta: { 'berth.dev': { runId, requestId: data.requestId } },
      },
      { cancellationSignal: signal, stopWaitingOnCancel: true },
    );
    if (answer.outcome.outcome === 'selected') {
      const { optionId } = answer.outcome;
      await services.runs.respond(caller, runId, { requestId: data.requestId, optionId });
    } else if (!signal.aborted) {
      // The client has given the turn up.
      await services.runs.cancel(caller, runId);
    }
  }

  /** A client that cannot answer, or answers what was not offered, does not allow it. */
  async #failed({ runId, data }: Question, error: unknown, signal: AbortSignal): Promise<void> {
    if (signal.aborted || isSettled(error)) return;
    // Without a connection there is no answer: the run goes on waiting, for whoever comes next.
    if (!(error instanceof RequestError || error instanceof DomainError || error instanceof TypeError))
      return;
    const { services, caller } = this.#place;
    const reject = data.options.find((option) => option.kind.startsWith('reject'));
    if (!reject) return void (await services.runs.cancel(caller, runId));
    const { optionId } = reject;
    await services.runs.respond(caller, runId, { requestId: data.requestId, optionId });
  }
}

/** Somebody else was faster, or nothing is left to answer. */
function isSettled(error: unknown): boolean {
  return error instanceof DomainError && (error.code === 'conflict' || error.code === 'not_found');
}

function kindOf(kind: string): PermissionOptionKind {
  if (kind === 'allow_always' || kind === 'reject_once' || kind === 'reject_always') return kind;
  return 'allow_once';
}
