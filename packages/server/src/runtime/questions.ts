import { cleanText, cleanValue } from '../domain/clean-text.ts';
import type { EventBody, PermissionOption } from '../domain/events.ts';
import { noAnswer } from '../domain/questions.ts';
import type { Answer, InputForm, Question } from '../domain/questions.ts';
import { resolvedEvent } from '../services/answers.ts';
import type { RunLife, RunWriter } from '../services/run-life.ts';

interface Open {
  question: Question;
  resolve(answer: Answer): void;
}

/** The questions of one run: permissions are answered by policy or put to the caller, inputs always are the caller's. */
export class Questions {
  readonly #life: RunLife;
  readonly #writer: RunWriter;
  readonly #policy: 'auto' | 'ask';
  readonly #open = new Map<string, Open>();
  #closing: Promise<void> | null = null;

  constructor(life: RunLife, writer: RunWriter, policy: 'auto' | 'ask') {
    this.#life = life;
    this.#writer = writer;
    this.#policy = policy;
  }

  get isWaiting(): boolean {
    return this.#open.size > 0;
  }

  /** `recorded` is called when the question is on its way to the log. */
  async ask(question: Question, recorded: () => void): Promise<Answer> {
    try {
      return await this.#ask(cleaned(question), recorded);
    } finally {
      recorded();
    }
  }

  /** An earlier process of the service had put this question to the caller; `isCancelled`: and told that nobody will answer it. */
  async askedBefore(question: Question, isCancelled: boolean): Promise<Answer> {
    if (isCancelled || this.#closing) return noAnswer(question.kind);
    return new Promise((resolve) => this.#open.set(question.requestId, { question, resolve }));
  }

  async #ask(question: Question, recorded: () => void): Promise<Answer> {
    if (this.#closing) return noAnswer(question.kind);
    const { runId } = this.#writer.claim;
    const { requestId } = question;
    if (question.kind === 'permission' && this.#policy === 'auto') {
      const answer: Answer = { kind: 'permission', optionId: allowed(question.options) };
      this.#writer.append(requestedEvent(runId, question), resolvedEvent(runId, question, answer, 'policy'));
      return answer;
    }
    return new Promise((resolve) => {
      this.#open.set(requestId, { question, resolve });
      // One write with the position after the question, so that the next process of the service finds all of it or nothing.
      this.#writer.ask(question, requestedEvent(runId, question), {
        type: 'run.awaiting_input',
        data: { runId, requestId },
      });
      recorded();
    });
  }

  /** A caller has answered; the events are written already. */
  answer(requestId: string, answer: Answer): void {
    const open = this.#open.get(requestId);
    this.#open.delete(requestId);
    open?.resolve(answer);
  }

  /**
   * The turn is over or being stopped: nobody will answer any more. Resolves when the log has the end of each question,
   * also for whoever calls while that is under way: nothing comes into the log after the end of the run.
   */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    const { claim } = this.#writer;
    // What was asked just now is not there before it is written.
    if (this.#open.size > 0) await this.#writer.flushed();
    for (const [requestId, { question, resolve }] of this.#open) {
      this.#open.delete(requestId);
      const answer = noAnswer(question.kind);
      const event = resolvedEvent(claim.runId, question, answer, 'cancel');
      await this.#life.cancelQuestion(claim, requestId, event).catch(() => this.#writer.append(event));
      resolve(answer);
    }
  }
}

function requestedEvent(runId: string, question: Question): EventBody {
  switch (question.kind) {
    case 'permission': {
      const { requestId, toolCallId, title, options } = question;
      return { type: 'permission.requested', data: { runId, requestId, toolCallId, title, options } };
    }
    case 'input': {
      const { requestId, message, form, purpose } = question;
      return { type: 'input.requested', data: { runId, requestId, message, form, purpose } };
    }
  }
}

function cleaned(question: Question): Question {
  switch (question.kind) {
    case 'permission': {
      const options = question.options.map(({ optionId, name, kind }) => ({
        optionId,
        name: cleanText(name),
        kind,
      }));
      const { toolCallId, title } = question;
      return { ...question, toolCallId: cleanText(toolCallId), title: cleanText(title), options };
    }
    case 'input':
      return {
        ...question,
        message: cleanText(question.message),
        form: cleanValue(question.form) as InputForm,
      };
  }
}

/** The least that lets the tool run. Null when the harness offers nothing of the kind. */
function allowed(options: PermissionOption[]): string | null {
  const byKind = (kind: string) => options.find((option) => option.kind === kind)?.optionId;
  return byKind('allow_once') ?? byKind('allow_always') ?? null;
}
