import type {
  CreateElicitationResponse,
  ElicitationSchema,
  PermissionOptionKind,
  RequestPermissionResponse,
} from '@agentclientprotocol/sdk';
import { methods, RequestError } from '@agentclientprotocol/sdk';
import { DomainError } from '../../domain/errors.ts';
import type { ConversationEvent, EventBody } from '../../domain/events.ts';
import type { Place } from './place.ts';

type EventOf<T extends EventBody['type']> = Extract<ConversationEvent, { type: T }>;
type PermissionRequested = EventOf<'permission.requested'>;
type InputRequested = EventOf<'input.requested'>;
export type Question = PermissionRequested | InputRequested;

export function isQuestion(event: ConversationEvent): event is Question {
  return event.type === 'permission.requested' || event.type === 'input.requested';
}

export function isAnswer(
  event: ConversationEvent,
): event is EventOf<'permission.resolved'> | EventOf<'input.resolved'> {
  return event.type === 'permission.resolved' || event.type === 'input.resolved';
}

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
    // A client that has no forms is not asked: the run waits for whoever answers by another surface.
    if (question.type === 'input.requested' && !this.#place.capabilities.elicitation?.form) return;
    const stop = new AbortController();
    this.#open.set(requestId, stop);
    const asked =
      question.type === 'permission.requested'
        ? this.#permission(question, stop.signal)
        : this.#input(question, stop.signal);
    asked
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

  async #input({ runId, data }: InputRequested, signal: AbortSignal): Promise<void> {
    const { client, services, caller } = this.#place;
    const answer: CreateElicitationResponse = await client.request(
      methods.client.elicitation.create,
      {
        mode: 'form',
        sessionId: this.#sessionId,
        message: data.message,
        requestedSchema: data.form as ElicitationSchema,
        _meta: { 'berth.dev': { runId, requestId: data.requestId } },
      },
      { cancellationSignal: signal, stopWaitingOnCancel: true },
    );
    if (answer.action === 'cancel') {
      if (!signal.aborted) await services.runs.cancel(caller, runId);
      return;
    }
    const given = 'content' in answer ? (answer.content as Record<string, unknown> | null | undefined) : null;
    const content = answer.action === 'accept' ? (given ?? {}) : null;
    await services.runs.respond(caller, runId, { requestId: data.requestId, content });
  }

  /** A client that cannot answer, or answers what was not offered, does not allow it. */
  async #failed(question: Question, error: unknown, signal: AbortSignal): Promise<void> {
    if (signal.aborted || isSettled(error)) return;
    // Without a connection there is no answer: the run goes on waiting, for whoever comes next.
    if (!(error instanceof RequestError || error instanceof DomainError || error instanceof TypeError))
      return;
    const { services, caller } = this.#place;
    const { runId, data } = question;
    if (question.type === 'input.requested')
      return void (await services.runs.respond(caller, runId, { requestId: data.requestId, content: null }));
    const reject = question.data.options.find((option) => option.kind.startsWith('reject'));
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
