import type { Artifact, Message, Part, StreamResponse, Task, TaskStatus } from '@a2a-js/sdk';
import { Role, TaskState } from '@a2a-js/sdk';
import type { ConversationEvent, EventBody, EventMessage } from '../../domain/events.ts';
import { dataPart, partOf, textPart } from './parts.ts';

/**
 * The artifact that holds the text of the agent's answer, in every task. Its id is the same in all attempts of a run, so
 * that the text of a later one takes the place of what an earlier one had streamed.
 */
export const ANSWER_ARTIFACT = 'answer';

/** An agent names its artifacts itself: one that it calls as we call the answer has a longer name, which no other gets. */
const shownId = (artifactId: string): string =>
  /^answer_*$/.test(artifactId) ? `${artifactId}_` : artifactId;

const terminal = new Set([
  TaskState.TASK_STATE_COMPLETED,
  TaskState.TASK_STATE_FAILED,
  TaskState.TASK_STATE_CANCELED,
  TaskState.TASK_STATE_REJECTED,
]);

interface Question {
  requestId: string;
  message: Message;
  /** What the task is while it waits for the answer. */
  state: TaskState.TASK_STATE_INPUT_REQUIRED | TaskState.TASK_STATE_AUTH_REQUIRED;
}

/**
 * A run as an A2A task: its events go in, in order, and what a client is told of each comes out. All that A2A shows of a
 * run is made here: answers, streams, lists and push notifications are the same fold over the same log.
 */
export class TaskView {
  readonly taskId: string;
  readonly contextId: string;
  /** The seq of the last event that went in. */
  seq = 0;
  /** Set when the run completed and its agent calls the answer a plain message. */
  isPlainReply = false;
  readonly #version: '1.0' | '0.3';
  #status: TaskStatus = { state: TaskState.TASK_STATE_SUBMITTED, message: undefined, timestamp: undefined };
  #history: Message[] = [];
  #artifacts = new Map<string, Artifact>();
  /** The text streamed in the present attempt. */
  #text = '';
  #answer: Message | null = null;
  #questions: Question[] = [];

  /**
   * `version`: clients of 0.3 show what a completed task's status says and its artifacts one after the other, so that the
   * answer stands in its artifact only; for those of 1.0 it is in both.
   */
  constructor(taskId: string, contextId: string, version: '1.0' | '0.3') {
    this.taskId = taskId;
    this.contextId = contextId;
    this.#version = version;
  }

  get state(): TaskState {
    return this.#status.state;
  }

  get isTerminal(): boolean {
    return terminal.has(this.state);
  }

  /** It waits for somebody: a blocking call answers. */
  get isInterrupted(): boolean {
    return this.isAsking || this.state === TaskState.TASK_STATE_AUTH_REQUIRED;
  }

  /**
   * It waits for a message of the client: a stream ends. Not so when it waits to be allowed something: that comes from
   * elsewhere, and the stream tells how it goes on (A2A 1.0, "In-Task Authorization").
   */
  get isAsking(): boolean {
    return this.state === TaskState.TASK_STATE_INPUT_REQUIRED;
  }

  get answer(): Message | null {
    return this.#answer;
  }

  /** `historyLength` undefined: all of it. */
  task(options: { historyLength?: number | undefined; artifacts?: boolean } = {}): Task {
    const { historyLength, artifacts = true } = options;
    const history = historyLength === undefined ? this.#history : lastOf(this.#history, historyLength);
    return {
      id: this.taskId,
      contextId: this.contextId,
      status: this.#status,
      artifacts: artifacts ? [...this.#artifacts.values()] : [],
      history: [...history],
      metadata: undefined,
    };
  }

  apply(event: ConversationEvent): StreamResponse[] {
    this.seq = event.seq;
    return this.#take(event, event.at.toISOString());
  }

  // oxlint-disable-next-line complexity -- one line for each of the closed union's types
  #take(event: EventBody, at: string): StreamResponse[] {
    switch (event.type) {
      case 'message.created':
        return this.#messageCreated(event.data);
      case 'run.queued':
        this.#status = { state: TaskState.TASK_STATE_SUBMITTED, message: undefined, timestamp: at };
        return [{ payload: { $case: 'task', value: this.task() } }];
      case 'run.started':
      case 'run.resumed':
        return this.#turnTo(TaskState.TASK_STATE_WORKING, at);
      case 'run.retrying':
        this.#text = '';
        this.#artifacts.clear();
        return this.#turnTo(TaskState.TASK_STATE_WORKING, at);
      case 'run.awaiting_input': {
        const asked = this.#questions.find(({ requestId }) => requestId === event.data.requestId);
        return this.#turnTo(asked?.state ?? TaskState.TASK_STATE_INPUT_REQUIRED, at, asked?.message);
      }
      case 'message.delta':
        return this.#delta(event.data.text);
      case 'artifact.updated':
        return this.#artifactUpdated(event.data);
      case 'input.requested':
      case 'permission.requested':
        this.#questions.push({
          requestId: event.data.requestId,
          message: this.#message(event.data.requestId, Role.ROLE_AGENT, questionParts(event)),
          state:
            event.type === 'input.requested' && event.data.purpose === 'authorization'
              ? TaskState.TASK_STATE_AUTH_REQUIRED
              : TaskState.TASK_STATE_INPUT_REQUIRED,
        });
        return [];
      case 'input.resolved':
      case 'permission.resolved':
        this.#resolved(event);
        return [];
      case 'run.completed':
        this.isPlainReply = event.data.reply === 'message';
        return this.#turnTo(
          TaskState.TASK_STATE_COMPLETED,
          at,
          (this.#version === '1.0' && this.#answer) || undefined,
        );
      case 'run.failed': {
        const { code, error } = event.data.error;
        const state = code === 'refused' ? TaskState.TASK_STATE_REJECTED : TaskState.TASK_STATE_FAILED;
        const why = this.#message(`${this.taskId}-end`, Role.ROLE_AGENT, [textPart(error)]);
        return this.#turnTo(state, at, { ...why, metadata: { code } });
      }
      case 'run.cancelled':
        return this.#turnTo(TaskState.TASK_STATE_CANCELED, at);
      case 'thought.delta':
      case 'tool.started':
      case 'tool.updated':
      case 'tool.finished':
      case 'plan.updated':
      case 'usage.recorded':
        return [];
    }
  }

  #turnTo(state: TaskState, at: string, message?: Message): StreamResponse[] {
    this.#status = { state, message, timestamp: at };
    const value = {
      taskId: this.taskId,
      contextId: this.contextId,
      status: this.#status,
      metadata: undefined,
    };
    return [{ payload: { $case: 'statusUpdate', value } }];
  }

  #messageCreated(created: EventMessage): StreamResponse[] {
    if (created.role === 'user') {
      const parts = [...(created.content === '' ? [] : [textPart(created.content)])];
      for (const part of created.parts ?? []) parts.push(partOf(part));
      this.#history.push(this.#message(created.clientMessageId ?? created.id, Role.ROLE_USER, parts));
      return [];
    }
    if (created.content === '') return [];
    this.#answer = this.#message(created.id, Role.ROLE_AGENT, [textPart(created.content)]);
    // What was streamed is this text already, unless the log has lost its deltas or the agent has thought better of it.
    if (this.#text === created.content) return [];
    this.#text = created.content;
    return this.#putArtifact(ANSWER_ARTIFACT, 'Answer', null, [textPart(created.content)], false, true);
  }

  #delta(text: string): StreamResponse[] {
    const append = this.#text !== '';
    this.#text += text;
    const updates = this.#putArtifact(ANSWER_ARTIFACT, 'Answer', null, [textPart(text)], append, false);
    // A client joins the pieces itself; the task holds the text as one part.
    this.#artifacts.get(ANSWER_ARTIFACT)!.parts = [textPart(this.#text)];
    return updates;
  }

  #artifactUpdated(data: Extract<EventBody, { type: 'artifact.updated' }>['data']): StreamResponse[] {
    const parts = data.parts.map(partOf);
    return this.#putArtifact(
      shownId(data.artifactId),
      data.name,
      data.description,
      parts,
      data.append,
      data.lastChunk,
    );
  }

  #putArtifact(
    artifactId: string,
    name: string | null,
    description: string | null,
    parts: Part[],
    append: boolean,
    lastChunk: boolean,
  ): StreamResponse[] {
    const before = this.#artifacts.get(artifactId);
    const chunk: Artifact = {
      artifactId,
      name: name ?? before?.name ?? '',
      description: description ?? before?.description ?? '',
      parts,
      metadata: undefined,
      extensions: [],
    };
    const isMore = append && before !== undefined;
    this.#artifacts.set(artifactId, { ...chunk, parts: isMore ? [...before.parts, ...parts] : parts });
    const { taskId, contextId } = this;
    const value = { taskId, contextId, artifact: chunk, append: isMore, lastChunk, metadata: undefined };
    return [{ payload: { $case: 'artifactUpdate', value } }];
  }

  #resolved(event: Extract<EventBody, { type: 'input.resolved' | 'permission.resolved' }>): void {
    const { requestId, by } = event.data;
    const asked = this.#questions.find((question) => question.requestId === requestId);
    this.#questions = this.#questions.filter((question) => question !== asked);
    // What a policy decided, or nobody, is no talk with the client.
    if (!asked || by !== 'caller') return;
    const ofClient = event.type === 'input.resolved' ? event.data.clientMessageId : undefined;
    this.#history.push(
      asked.message,
      this.#message(ofClient ?? `${requestId}-answer`, Role.ROLE_USER, answerParts(event)),
    );
  }

  #message(messageId: string, role: Role, parts: Part[]): Message {
    const { taskId, contextId } = this;
    return {
      messageId,
      contextId,
      taskId,
      role,
      parts,
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
    };
  }
}

function lastOf<T>(items: T[], count: number): T[] {
  return count === 0 ? [] : items.slice(-count);
}

function questionParts(
  event: Extract<EventBody, { type: 'input.requested' | 'permission.requested' }>,
): Part[] {
  if (event.type === 'permission.requested') {
    const { requestId, title, options } = event.data;
    const choices = options.map(({ name }) => name).join(', ');
    return [textPart(`${title}\nAnswer with one of: ${choices}.`), dataPart({ requestId, options })];
  }
  const { requestId, message, form } = event.data;
  return [textPart(message || 'The agent waits for an answer.'), dataPart({ requestId, form })];
}

function answerParts(event: Extract<EventBody, { type: 'input.resolved' | 'permission.resolved' }>): Part[] {
  if (event.type === 'permission.resolved') return [textPart(event.data.optionId ?? '')];
  const { content, action } = event.data;
  if (content === null) return [textPart(action)];
  const values = Object.values(content);
  const [only] = values;
  return values.length === 1 && typeof only === 'string' ? [textPart(only)] : [dataPart(content)];
}
