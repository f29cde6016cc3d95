import { applyArtifact } from '../../domain/artifacts.ts';
import type { RunError } from '../../domain/errors.ts';
import type { ConversationEvent, EventMessage } from '../../domain/events.ts';
import type { Artifact } from '../../domain/parts.ts';
import type { Question } from '../../domain/questions.ts';
import { eventOf } from '../present/events.ts';
import { answerOf, partOf } from './messages.ts';
import type { ErrorBody, Event, Message, MessagePart, Run, RunStatus } from './shapes.ts';

/** The log of a run, told as the Agent Communication Protocol does: its events, and the run as it is after each. */
export class RunStory {
  readonly #agentName: string;
  readonly #runId: string;
  readonly #sessionId: string;
  readonly #artifacts = new Map<string, Artifact>();
  readonly #questions = new Map<string, Question>();
  #status: RunStatus = 'created';
  #createdAt: string;
  #finishedAt: string | null = null;
  #error: RunError | null = null;
  /** Of the answer that is being said. */
  #said = { messageId: '', text: '', at: '' };
  #isMessageBegun = false;
  #answer: EventMessage | null = null;

  constructor(ids: { agentName: string; runId: string; sessionId: string; createdAt: Date }) {
    this.#agentName = ids.agentName;
    this.#runId = ids.runId;
    this.#sessionId = ids.sessionId;
    this.#createdAt = ids.createdAt.toISOString();
  }

  get status(): RunStatus {
    return this.#status;
  }

  /** Whether a client that waits for the run has something to read: it has ended, or asks. */
  get isSettled(): boolean {
    return ['awaiting', 'completed', 'failed', 'cancelled'].includes(this.#status);
  }

  run(): Run {
    const { text, at } = this.#answer
      ? { text: this.#answer.content, at: this.#answer.createdAt }
      : { text: this.#said.text, at: this.#said.at || this.#createdAt };
    // What was said so far is no answer yet.
    const shown = this.#status === 'completed' ? text : '';
    const answer = answerOf(this.#agentName, { text: shown, at }, this.#artifacts.values(), this.#finishedAt);
    const [question] = this.#questions.values();
    return {
      agent_name: this.#agentName,
      session_id: this.#sessionId,
      run_id: this.#runId,
      status: this.#status,
      ...(this.#status === 'awaiting' && question && { await_request: this.#awaitRequest(question) }),
      output: answer ? [answer] : [],
      ...(this.#error && { error: errorOf(this.#error) }),
      created_at: this.#createdAt,
      ...(this.#finishedAt !== null && { finished_at: this.#finishedAt }),
    };
  }

  take(event: ConversationEvent): Event[] {
    switch (event.type) {
      case 'run.queued':
        return [{ type: 'run.created', run: this.run() }];
      case 'run.started':
        return this.#goOn();
      case 'run.resumed':
        return this.#goOn();
      case 'message.delta':
        return this.#part(event, partOf({ kind: 'text', text: event.data.text }), event.data.messageId);
      case 'artifact.updated': {
        applyArtifact(this.#artifacts, event.data);
        const name = event.data.name ?? event.data.artifactId;
        return event.data.parts.flatMap((part) => this.#part(event, partOf(part, name), null));
      }
      case 'message.created':
        return event.data.role === 'assistant' ? this.#whole(event, event.data) : [];
      case 'permission.requested':
      case 'input.requested': {
        const { requestId } = event.data;
        this.#questions.set(
          requestId,
          event.type === 'permission.requested'
            ? { ...event.data, kind: 'permission' }
            : { ...event.data, kind: 'input' },
        );
        return [];
      }
      case 'permission.resolved':
      case 'input.resolved':
        this.#questions.delete(event.data.requestId);
        return [];
      case 'run.awaiting_input':
        this.#status = 'awaiting';
        return [{ type: 'run.awaiting', run: this.run() }];
      case 'run.retrying':
        this.#said = { messageId: '', text: '', at: '' };
        this.#isMessageBegun = false;
        this.#artifacts.clear();
        return [this.#generic(event)];
      case 'run.completed':
        return this.#end(event.at, 'completed', null);
      case 'run.failed':
        return this.#end(event.at, 'failed', event.data.error);
      case 'run.cancelled':
        return this.#end(event.at, 'cancelled', null);
      case 'thought.delta':
      case 'tool.started':
      case 'tool.updated':
      case 'tool.finished':
      case 'plan.updated':
      case 'usage.recorded':
        return [this.#generic(event)];
    }
  }

  #goOn(): Event[] {
    if (this.#status === 'in-progress') return [];
    this.#status = 'in-progress';
    return [{ type: 'run.in-progress', run: this.run() }];
  }

  /** A message begins with its first part. Its own event has an empty one, since a message must have one. */
  #part(event: ConversationEvent, part: MessagePart, messageId: string | null): Event[] {
    const told: Event[] = [];
    if (!this.#isMessageBegun) {
      this.#isMessageBegun = true;
      this.#said.at = event.at.toISOString();
      told.push({ type: 'message.created', message: this.#begun() });
    }
    if (messageId !== null) {
      if (this.#said.messageId !== messageId) this.#said = { ...this.#said, messageId, text: '' };
      this.#said.text += part.content ?? '';
    }
    told.push({ type: 'message.part', part });
    return told;
  }

  #begun(): Message {
    const parts = [{ content_type: 'text/plain', content: '' }];
    return { role: `agent/${this.#agentName}`, parts, created_at: this.#said.at };
  }

  /** The whole answer; what of it was not streamed, or is not in the log any more, is told now. */
  #whole(event: ConversationEvent, answer: EventMessage): Event[] {
    const rest = answer.content.slice(this.#said.messageId === answer.id ? this.#said.text.length : 0);
    const told = rest === '' ? [] : this.#part(event, partOf({ kind: 'text', text: rest }), answer.id);
    this.#answer = answer;
    const said = { text: answer.content, at: this.#said.at || answer.createdAt };
    const message = answerOf(this.#agentName, said, this.#artifacts.values(), answer.createdAt);
    return message ? [...told, { type: 'message.completed', message }] : told;
  }

  #end(at: Date, status: 'completed' | 'failed' | 'cancelled', error: RunError | null): Event[] {
    this.#status = status;
    this.#finishedAt = at.toISOString();
    this.#error = error;
    return [{ type: `run.${status}`, run: this.run() }];
  }

  #generic(event: ConversationEvent): Event {
    const { type, data } = eventOf(event);
    return { type: 'generic', generic: { type, ...(data as object) } };
  }

  /** `message` is what every client can show; `request` says what may be answered. */
  #awaitRequest(question: Question): Record<string, unknown> {
    const words = question.kind === 'permission' ? question.title : question.message;
    const choices = question.kind === 'permission' ? question.options.map(({ optionId }) => optionId) : [];
    const text = choices.length > 0 ? `${words} (${choices.join(', ')})` : words;
    return {
      type: 'message',
      message: { role: `agent/${this.#agentName}`, parts: [{ content_type: 'text/plain', content: text }] },
      request: requestOf(question),
    };
  }
}

function requestOf(question: Question): Record<string, unknown> {
  const { requestId: id, kind } = question;
  if (question.kind === 'permission') return { id, kind, title: question.title, options: question.options };
  return { id, kind, message: question.message, schema: question.form };
}

export function errorOf(error: RunError): ErrorBody {
  return { code: 'server_error', message: error.error, data: { code: error.code } };
}
