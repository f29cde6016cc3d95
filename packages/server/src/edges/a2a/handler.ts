import { createHash } from 'node:crypto';
import { Message as MessageCodec } from '@a2a-js/sdk';
import type {
  CancelTaskRequest,
  AgentCard,
  GetTaskRequest,
  ListTasksRequest,
  ListTasksResponse,
  Message,
  SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
  Task,
} from '@a2a-js/sdk';
import type { A2ARequestHandler } from '@a2a-js/sdk/server';
import { DomainError } from '../../domain/errors.ts';
import { isLargeValue } from '../../domain/json-shape.ts';
import { limits } from '../../domain/limits.ts';
import type { Agent, Run } from '../../domain/nouns.ts';
import { isTerminal } from '../../domain/nouns.ts';
import { apart, oneStep, senderOf } from '../../domain/slices.ts';
import { answerTo } from './answers.ts';
import { canonicalJson } from './canonical-json.ts';
import { agentCard, extendedCard } from './card.ts';
import { malformed } from './guard.ts';
import { TaskNotCancelableError, UnsupportedOperationError } from './errors.ts';
import { followRun } from '../hosts/follow-run.ts';
import type { Patience } from '../hosts/follow-run.ts';
import { taskFilter } from './list-filter.ts';
import { readParts } from './parts.ts';
import { sendInContext } from '../hosts/send-in-context.ts';
import { PushOperations, readPushConfig } from './push-operations.ts';
import type { TaskCall } from './push-operations.ts';
import { TaskView } from './task-view.ts';
import type { Version } from './versions.ts';

const PAGE = 500;

/** Of agents as they were read, with what else a card is made of. */
const cards = new WeakMap<
  Agent,
  Pick<TaskCall, 'origin' | 'grpcTarget' | 'a2aCapabilities'> & { card: AgentCard }
>();

/** A task that a message went to, and whether what it was before is in it already. */
interface Begun {
  view: TaskView;
  isFresh: boolean;
}

/**
 * The operations of A2A as service calls, in the SDK's terms: it does the shapes of both versions, the runs, conversations
 * and their log are ours. One for each request. What a request holds is checked before (guard.ts).
 */
export class TaskHandler extends PushOperations implements A2ARequestHandler {
  /** Of the event that was yielded last, for the `id:` of a stream. */
  seq = 0;
  readonly #signal: AbortSignal;

  constructor(call: TaskCall, version: Version, signal: AbortSignal) {
    super(call, version);
    this.#signal = signal;
  }

  /** The SDK's layers look at it with each call. Agents are known as one object for a while. */
  async getAgentCard(): Promise<AgentCard> {
    const { agent, origin, grpcTarget, a2aCapabilities } = this.call;
    const known = cards.get(agent);
    const isSame =
      known?.origin === origin &&
      known.grpcTarget === grpcTarget &&
      known.a2aCapabilities === a2aCapabilities;
    if (isSame) return known.card;
    const card = agentCard(this.call);
    cards.set(agent, { origin, grpcTarget, a2aCapabilities, card });
    return card;
  }

  async getAuthenticatedExtendedAgentCard(): Promise<AgentCard> {
    this.declared('extendedAgentCard');
    return extendedCard(this.call);
  }

  async sendMessage(params: SendMessageRequest): Promise<Message | Task> {
    const { historyLength, returnImmediately = false } = params.configuration ?? {};
    const { view } = await this.#begin(params, !returnImmediately);
    const isDone = () => (returnImmediately ? view.seq > 0 : view.isTerminal || view.isInterrupted);
    if (!isDone()) {
      const patience = { waitMs: limits.waitMaxSeconds * 1000, isPatient: true };
      for await (const batch of this.#follow(view, patience)) {
        for (const event of batch) view.apply(event);
        if (isDone()) break;
      }
      // One that came while the service stops was told nothing.
      if (view.seq === 0) await this.#catchUp(view);
    }
    if (view.isPlainReply && view.answer) return { ...view.answer, taskId: '' };
    return view.task({ historyLength });
  }

  async *sendMessageStream(params: SendMessageRequest): AsyncGenerator<StreamResponse, void, undefined> {
    this.declared('streaming');
    const { view, isFresh } = await this.#begin(params, true);
    if (!isFresh) {
      this.seq = view.seq;
      yield taskResponse(view.task({ historyLength: params.configuration?.historyLength }));
      if (view.isTerminal || view.isAsking) return;
    }
    yield* this.#updates(view);
  }

  async getTask(params: GetTaskRequest): Promise<Task> {
    const run = await this.run(params.id);
    const view = await this.#viewOf(run);
    return view.task({ historyLength: params.historyLength });
  }

  async cancelTask(params: CancelTaskRequest): Promise<Task> {
    const run = await this.run(params.id);
    if (run.status !== 'cancelled') {
      if (isTerminal(run.status)) throw notCancelable(run);
      await this.call.services.runs.cancel(this.call.caller, run.id).catch((error: unknown) => {
        throw error instanceof DomainError && error.code === 'conflict' ? notCancelable(run) : error;
      });
    }
    return (await this.#viewOf(run)).task();
  }

  async *resubscribe(params: SubscribeToTaskRequest): AsyncGenerator<StreamResponse, void, undefined> {
    this.declared('streaming');
    const run = await this.run(params.id);
    if (isTerminal(run.status))
      throw new UnsupportedOperationError(`The task ${run.id} has ended; get it instead.`);
    const view = await this.#snapshot(run.id, await this.contextOf(run.conversationId));
    this.seq = view.seq;
    yield taskResponse(view.task());
    if (!view.isTerminal) yield* this.#updates(view);
  }

  async listTasks(params: ListTasksRequest): Promise<ListTasksResponse> {
    const { services, caller, agent } = this.call;
    const pageSize = params.pageSize ?? limits.pageDefault;
    const conversationId =
      params.contextId === '' ? null : await services.a2a.findContext(caller, agent.id, params.contextId);
    const filter = taskFilter(params);
    const cursor = params.pageToken === '' ? null : params.pageToken;
    if (filter === null || (params.contextId !== '' && conversationId === null)) {
      if (cursor !== null)
        throw malformed('pageToken', 'is not one of this list, which is empty; begin again without it.');
      return { tasks: [], nextPageToken: '', pageSize, totalSize: 0 };
    }
    const query = { ...filter, conversationId, limit: pageSize, cursor };
    const { rows, total, nextCursor } = await services.a2a.listTasks(caller, agent.id, query);
    const withArtifacts = params.includeArtifacts ?? false;
    const contexts = await services.a2a.contextIds([...new Set(rows.map((row) => row.conversationId))]);
    const views = new Map(
      rows.map(({ runId, conversationId: id }) => [
        runId,
        new TaskView(runId, contexts.get(id) ?? id, this.version),
      ]),
    );
    for (const event of await services.a2a.taskEvents(caller, [...views.keys()], withArtifacts))
      views.get(event.runId)?.apply(event);
    const options = { historyLength: params.historyLength ?? 0, artifacts: withArtifacts };
    const tasks = [...views.values()].map((view) => view.task(options));
    return { tasks, nextPageToken: nextCursor ?? '', pageSize, totalSize: total };
  }

  /** What comes, until the task ends or waits for its client. */
  async *#updates(view: TaskView): AsyncGenerator<StreamResponse, void, undefined> {
    for await (const batch of this.#follow(view)) {
      for (const event of batch) {
        for (const response of view.apply(event)) {
          this.seq = event.seq;
          yield response;
        }
        if (view.isTerminal || (view.isAsking && event.type === 'run.awaiting_input')) return;
      }
    }
  }

  #follow(view: TaskView, patience: Patience = {}) {
    const { services, caller } = this.call;
    return followRun(services.events, caller, view.taskId, view.seq, this.#signal, patience);
  }

  /** `isFollowed`: the answer goes on until the task has ended or asks, in one piece or as a stream. */
  async #begin(params: SendMessageRequest, isFollowed: boolean): Promise<Begun> {
    const message = params.message!;
    const { services, caller, agent } = this.call;
    const push = readPushConfig(params.configuration?.taskPushNotificationConfig, this.version);
    if (push) {
      this.declared('pushNotifications');
      await services.a2a.checkPushTarget(push.url);
    }
    const begun =
      message.taskId === ''
        ? await this.#newTask(params, message, isFollowed)
        : await this.#followUp(message);
    if (push)
      await services.a2a.putPushConfig(caller, agent.id, begun.view.taskId, push, message.taskId === '');
    return begun;
  }

  /**
   * The same message again is the same task, by whatever operation and binding it comes and however its answer is to
   * look. But what returns at once is another request than what is followed: the compatibility kit sends one message in
   * both manners, and wants the second answer before its task has ended (docs/decisions/0090).
   */
  async #newTask(params: SendMessageRequest, message: Message, isFollowed: boolean): Promise<Begun> {
    const { services, caller, agent } = this.call;
    const { text, others } = readParts(message.parts);
    const { contextId } = message;
    const requestHash = await this.#nameOf(message, agent.id, isFollowed);
    const accepted = await sendInContext(services, caller, contextId, {
      agentId: agent.id,
      content: text,
      parts: others,
      clientMessageId: message.messageId,
      metadata: message.metadata ?? params.metadata ?? null,
      onBusy: 'enqueue',
      source: 'a2a',
      idempotency: { key: `a2a:${requestHash}`, requestHash },
    });
    const context = contextId || accepted.conversationId;
    if (accepted.replayed) return { view: await this.#snapshot(accepted.runId, context), isFresh: false };
    return { view: new TaskView(accepted.runId, context, this.version), isFresh: true };
  }

  /** Of a message and what it is for: the same again has the same name, and nothing else has. */
  #nameOf(message: Message, ...more: unknown[]): string | Promise<string> {
    const { caller } = this.call;
    const name = () => {
      const same = [...more, this.version, MessageCodec.toJSON(message)];
      return createHash('sha256').update(canonicalJson(same)).digest('hex');
    };
    return isLargeValue(message) ? apart(senderOf(caller), oneStep(name)) : name();
  }

  /**
   * A message to a task that waits answers what it asked; to another one there is nothing to say. One that comes again
   * has answered its question already, and is told of the task as it is, whatever that asks by now.
   */
  async #followUp(message: Message): Promise<Begun> {
    const { services, caller } = this.call;
    const run = await this.run(message.taskId);
    const contextId = await this.contextOf(run.conversationId);
    if (
      message.contextId !== '' &&
      message.contextId !== contextId &&
      message.contextId !== run.conversationId
    )
      throw malformed('message.contextId', 'is not the context of the task that message.taskId names.');
    const repeatKey = await this.#nameOf(message, caller.keyId);
    const { open, isRepeated } = await services.runs.asked(caller, run.id, repeatKey);
    const view = await this.#snapshot(run.id, contextId);
    if (isRepeated) return { view, isFresh: false };
    if (isTerminal(run.status))
      throw new UnsupportedOperationError(
        `The task ${run.id} has ended; send the message without its taskId, to the same contextId.`,
      );
    const [question] = open;
    if (!question) {
      throw new UnsupportedOperationError(
        `The task ${run.id} does not wait for a message; send it without taskId, and it is dealt with after this task.`,
      );
    }
    const answer = answerTo(question, readParts(message.parts));
    const { messageId: clientMessageId, metadata = null } = message;
    const told = { source: 'a2a', clientMessageId, metadata };
    const response = 'content' in answer ? { ...answer, message: told } : answer;
    await services.runs.respond(caller, run.id, { ...response, repeatKey }).catch(async (error: unknown) => {
      // It may have been sent twice at the same time, and its other self has answered.
      const isLate = error instanceof DomainError && error.code === 'conflict';
      if (!isLate || !(await services.runs.asked(caller, run.id, repeatKey)).isRepeated) throw error;
    });
    await this.#catchUp(view);
    return { view, isFresh: false };
  }

  async #viewOf(run: Run): Promise<TaskView> {
    const { services, caller } = this.call;
    const contextId = await this.contextOf(run.conversationId);
    if (!isTerminal(run.status)) return this.#snapshot(run.id, contextId);
    const view = new TaskView(run.id, contextId, this.version);
    for (const event of await services.a2a.taskEvents(caller, [run.id], true)) view.apply(event);
    return view;
  }

  async #snapshot(runId: string, contextId: string): Promise<TaskView> {
    const view = new TaskView(runId, contextId, this.version);
    await this.#catchUp(view);
    return view;
  }

  async #catchUp(view: TaskView): Promise<void> {
    const { services, caller } = this.call;
    for (let hasMore = true; hasMore;) {
      const page = await services.events.after(caller, { runId: view.taskId }, view.seq, PAGE);
      for (const event of page.events) view.apply(event);
      hasMore = page.hasMore;
    }
  }
}

function taskResponse(task: Task): StreamResponse {
  return { payload: { $case: 'task', value: task } };
}

function notCancelable(run: Run): TaskNotCancelableError {
  return new TaskNotCancelableError(`The task ${run.id} has ended already; it is ${run.status}.`);
}
