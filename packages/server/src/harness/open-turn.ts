import { setImmediate as nextTurn } from 'node:timers/promises';
import type { HarnessUpdate, ResumedTurn, TurnRequest } from '../domain/ports/harness.ts';
import type { Answer, Question } from '../domain/questions.ts';
import type { Channel, LinePlace } from './channel.ts';
import { isRecord } from './clean.ts';
import { eventCost } from './control/reading-pace.ts';
import { answerResult, fittingAnswer } from './questions.ts';
import { sessionNote } from './session-notes.ts';
import type { SessionNote } from './session-notes.ts';
import { TurnUpdates } from './turn-updates.ts';

/** What is told beyond it waits until what was told before is on record: it would be written in one piece, which holds up everybody. */
const maxUnrecordedChars = 8 * 1024 * 1024;
/** So long at most: other turns, and commands, wait with it. */
const maxRecordMs = 1000;

export type AnyTurnRequest = TurnRequest | ResumedTurn;

/** A turn that is under way in a harness: what it tells goes to the request, with the position up to which it has told. */
export class OpenTurn {
  readonly request: AnyTurnRequest;
  onExcess: (why: string) => void = () => undefined;
  /** A question that an earlier process of the service was asked is about to be answered. */
  onAnswered: (rpcId: string | number) => void = () => undefined;
  openQuestions = 0;
  /** What was told cost so much since it was last seen to that it is on record. */
  #unrecorded = 0;
  readonly #channel: Channel;
  readonly #note: SessionNote;
  readonly #updates: TurnUpdates;
  /** What ended before it is on record already. */
  readonly #told: number;
  /** Ends of lines whose question is not on its way to the log yet. */
  readonly #asking = new Set<number>();
  /** Of the last line that was taken. */
  #end = 0;
  /** JSON-RPC ids of questions that an earlier process of the service was asked, and that wait for their answer. */
  readonly #askedBefore = new Set<string | number>();

  constructor(
    channel: Channel,
    note: SessionNote,
    request: AnyTurnRequest,
    tools: Extract<HarnessUpdate, { kind: 'tool' }>[],
    told = 0,
  ) {
    this.#channel = channel;
    this.#note = note;
    this.request = request;
    this.#told = told;
    this.#updates = new TurnUpdates(
      request.onUpdate,
      (why) => this.onExcess(why),
      (chars) => this.#charge(chars),
    );
    this.#updates.restore(tools);
  }

  take(update: unknown, line: LinePlace): void {
    if (line.end <= this.#told) return;
    this.#updates.take(update, line.chars);
    this.#tell(line.end);
  }

  mayRecord(line: LinePlace): boolean {
    return line.end <= this.#told || this.#updates.mayRecord();
  }

  /**
   * Whether the question of a line is an earlier process's: it was answered by that one, or will be where it is on record, and is
   * not asked anew. A harness names no two open questions alike.
   */
  knows(rpcId: string | number, line: LinePlace): boolean {
    return line.end <= this.#told || this.#askedBefore.has(rpcId);
  }

  /** Puts a question; `toolCall` is what it says of the call that it is about. */
  async ask(rpcId: string | number, question: Question, toolCall: unknown, line: LinePlace): Promise<Answer> {
    // A call that was only announced here is shown like any other.
    if (isRecord(toolCall) && typeof toolCall['toolCallId'] === 'string')
      this.#updates.take({ ...toolCall, sessionUpdate: 'tool_call_update' }, 0);
    // Its events, and the notes of it: they hold no more than the line does.
    this.#charge(eventCost(4 * line.chars, 0));
    this.#note.turn!.asked[question.requestId] = rpcId;
    this.writeNote();
    this.#asking.add(line.end);
    const release = this.#channel.hold(line.end);
    this.openQuestions += 1;
    const recorded = () => {
      release();
      this.#asking.delete(line.end);
      this.#tell(line.end);
    };
    const answer = await this.request.onQuestion(question, recorded).finally(() => (this.openQuestions -= 1));
    this.#noteAnswered(question.requestId);
    return fittingAnswer(question, answer);
  }

  /** Takes up what an earlier process of the service was asked. */
  restoreQuestions(request: ResumedTurn): void {
    for (const [requestId, rpcId] of Object.entries(this.#note.turn!.asked)) {
      const answer = request.onAskedBefore(requestId);
      if (answer) {
        this.#askedBefore.add(rpcId);
        this.openQuestions += 1;
        void answer.then((given) => this.#answerBefore(requestId, rpcId, given));
        // It did not come to be on record: its line comes again, and is a question of its own.
      } else delete this.#note.turn!.asked[requestId];
    }
  }

  #answerBefore(requestId: string, rpcId: string | number, answer: Answer): void {
    this.#askedBefore.delete(rpcId);
    this.openQuestions -= 1;
    this.#noteAnswered(requestId);
    this.onAnswered(rpcId);
    this.#channel.peer.answer(rpcId, answerResult(answer));
  }

  /** Just before the answer is written, and in one write with it. A turn that is over has no note any more. */
  #noteAnswered(requestId: string): void {
    if (this.#note.turn === null) return;
    delete this.#note.turn.asked[requestId];
    this.writeNote();
  }

  /**
   * `isThere`: the harness lives on. What it began and did not finish in its turn has failed; of what was under way in one that is
   * gone nobody knows the end, and whoever keeps the log says so.
   */
  async end(isThere: boolean): Promise<void> {
    // What is told waits in memory until it is on record. Whoever else has the turn by now records nothing of it.
    const rest = () =>
      this.request
        .onAcknowledge()
        .catch(() => undefined)
        .then(nextTurn);
    if (isThere) await this.#updates.end(rest);
    this.#note.turn = null;
    this.#asking.clear();
  }

  writeNote(): void {
    const { conversationId, sessionId, turn } = this.#note;
    this.#channel.note(sessionNote(conversationId), { sessionId, turn });
  }

  #charge(chars: number): void {
    this.#channel.charge(chars);
    this.#unrecorded += chars;
    if (this.#unrecorded < maxUnrecordedChars) return;
    this.#unrecorded = 0;
    const done = once(this.#channel.wait());
    // Not before the line is told that brings it. A database that is away holds up no more than what is told.
    const timer = setTimeout(done, maxRecordMs);
    void nextTurn()
      .then(() => this.request.onAcknowledge())
      .catch(() => undefined)
      .finally(() => {
        clearTimeout(timer);
        done();
      });
  }

  #tell(end: number): void {
    // A question comes to be on record after lines that came behind it, which would be told again if it took them back.
    this.#end = Math.max(this.#end, end);
    const before = Math.min(...this.#asking);
    // The line of an open question, and what came after it, is not told whole.
    this.request.onTold(this.#end < before ? this.#end : before - 1);
  }
}

function once(work: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) work();
    isDone = true;
  };
}
