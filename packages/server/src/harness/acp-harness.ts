import type {
  AdoptedHarness,
  HarnessConnection,
  ResumedTurn,
  TurnRequest,
  TurnResult,
} from '../domain/ports/harness.ts';
import { Acknowledgements } from './acknowledgements.ts';
import { AnsweredQuestions } from './answered-questions.ts';
import { isRecord, textOf } from './clean.ts';
import type { Json } from './clean.ts';
import type { Channel, HarnessCapabilities, LinePlace } from './channel.ts';
import type { Notes } from './control/endpoint.ts';
import { failedTurn, HarnessError } from './harness-error.ts';
import { OpenTurn } from './open-turn.ts';
import { promptBlocks } from './prompt-blocks.ts';
import { answerResult, readQuestion, refusedQuestion } from './questions.ts';
import type { QuestionMethod } from './questions.ts';
import { historyPreamble, resumePreamble } from './preamble.ts';
import { readNotes, sessionNote } from './session-notes.ts';
import type { SessionNote } from './session-notes.ts';

const sessionTimeoutMs = 60_000;
/** A harness that does not stop within it loses its session; the turn is over for the caller. */
const cancelTimeoutMs = 10_000;
/** Idle sessions beyond it are closed, the oldest first: their history comes from the log again when they are needed. */
const maxSessions = 200;
/**
 * Sessions that the launcher keeps a note of, which are fewer than all of its notes, so that a turn is never without one. That
 * of the least recently used idle one goes first.
 */
const maxNotedSessions = 900;
/** Questions that may wait for an answer in one turn; what is asked beyond is refused at once. */
const maxOpenQuestions = 32;
/** Of a question's JSON-RPC id as JSON within its quotes: those of harnesses are numbers, or have some dozens. */
const maxIdChars = 200;

interface Session {
  id: string;
  conversationId: string;
  /** Goes in front of the first prompt, for a harness that cannot take history. */
  preamble: string;
  turn: OpenTurn | null;
}

/** The runner's view of one harness process: conversations are its sessions. */
export class AcpHarness implements HarnessConnection {
  readonly #channel: Channel;
  readonly #capabilities: HarnessCapabilities;
  readonly #workspace: string;
  /** By conversation, the least recently used first. */
  readonly #sessions = new Map<string, Session>();
  readonly #byId = new Map<string, Session>();
  /** Conversations that the launcher has a note of, the least recently used first. */
  readonly #noted = new Set<string>();
  readonly #acknowledgements: Acknowledgements;
  readonly #answered: AnsweredQuestions;

  constructor(channel: Channel, capabilities: HarnessCapabilities, workspace: string) {
    this.#workspace = workspace;
    this.#channel = channel;
    this.#capabilities = capabilities;
    this.#acknowledgements = new Acknowledgements(channel);
    this.#answered = new AnsweredQuestions(channel);
    channel.onUpdate = (sessionId, update, line) => {
      const turn = this.#byId.get(sessionId)?.turn;
      turn?.take(update, line);
      return turn !== undefined && turn !== null;
    };
    channel.onQuestion = (method, id, params, line) => this.#question(method, id, params, line);
    channel.onRecord = async (params) => {
      await this.#byId.get(textOf(params['sessionId']))?.turn?.request.onRecord();
      return {};
    };
    channel.onLine = (end) => this.#acknowledgements.handled(end);
  }

  /** Takes up what an earlier process of the service left in the launcher. `begin` lets the harness speak. */
  adopted(notes: Notes, launcherReceived: number, begin: () => void): AdoptedHarness {
    this.#answered.restore(notes);
    const known = readNotes(notes);
    for (const { conversationId, sessionId } of known) {
      this.#noted.add(conversationId);
      if (this.#byId.has(sessionId)) continue;
      const session: Session = { id: sessionId, conversationId, preamble: '', turn: null };
      this.#sessions.set(conversationId, session);
      this.#byId.set(sessionId, session);
    }
    // A prompt that did not arrive whole was not begun.
    const begun = known.filter(({ turn }) => turn !== null && turn.promptEnd <= launcherReceived);
    const resumed = new Set<string>();
    return {
      connection: this,
      unfinished: begun.map(({ conversationId, turn }) => ({
        conversationId,
        runId: turn!.runId,
        attempt: turn!.attempt,
        requestIds: Object.keys(turn!.asked),
      })),
      resume: (turn) => {
        resumed.add(turn.conversationId);
        return this.#resume(
          turn,
          begun.find((note) => note.conversationId === turn.conversationId)!,
        );
      },
      begin: (underWay) => {
        begin();
        for (const note of known) {
          if (note.turn !== null && !resumed.has(note.conversationId))
            this.closeSession(note.conversationId, underWay.has(note.conversationId));
        }
      },
    };
  }

  async prompt(turn: TurnRequest): Promise<TurnResult> {
    if (turn.signal.aborted) return { outcome: 'cancelled' };
    try {
      const session = await this.#session(turn);
      if (turn.signal.aborted) return { outcome: 'cancelled' };
      if (session.turn)
        throw new HarnessError('harness_error', 'The conversation has a turn in this harness already.');
      return await this.#run(session, turn);
    } catch (error) {
      return turn.signal.aborted ? { outcome: 'cancelled' } : failedTurn(error);
    }
  }

  conversationOfSession(sessionId: string): string | null {
    return this.#byId.get(sessionId)?.conversationId ?? null;
  }

  /** `isUnderWay`: an earlier process of the service has left a turn in it. */
  closeSession(conversationId: string, isUnderWay = false): void {
    const session = this.#sessions.get(conversationId);
    if (!session) return;
    this.#forget(session);
    this.#dropNote(conversationId);
    if (this.#capabilities.close) {
      this.#channel.peer.request('session/close', { sessionId: session.id }).catch(() => undefined);
    } else if (session.turn || isUnderWay) {
      this.#channel.peer.notify('session/cancel', { sessionId: session.id });
    }
  }

  close(): void {
    this.#channel.end();
    this.#channel.fail(new HarnessError('harness_exit', 'The sandbox was stopped.'));
  }

  async #session(turn: TurnRequest): Promise<Session> {
    const { conversationId } = turn;
    const known = this.#sessions.get(conversationId);
    if (known) {
      this.#sessions.delete(conversationId);
      this.#sessions.set(conversationId, known);
      return known;
    }
    return within(sessionTimeoutMs, this.#create(turn), turn.signal);
  }

  /** Registers the session also when nobody waits for it any more, so that the next turn finds it. */
  async #create(turn: TurnRequest): Promise<Session> {
    const { conversationId } = turn;
    const history = await turn.history();
    const takes = this.#capabilities.history;
    const params: Json = { cwd: this.#workspace, mcpServers: [] };
    if (takes && history.length > 0) params['_meta'] = { 'berth.dev': { history } };
    const result = await within(
      sessionTimeoutMs,
      this.#channel.peer.request('session/new', params),
      turn.signal,
    );
    const id = result['sessionId'];
    if (typeof id !== 'string' || id === '' || id.length > 500 || this.#byId.has(id)) {
      throw new HarnessError('harness_error', 'The harness gave no usable session id.');
    }
    const session: Session = {
      id,
      conversationId,
      preamble: takes ? '' : historyPreamble(history),
      turn: null,
    };
    this.#sessions.set(conversationId, session);
    this.#byId.set(id, session);
    return session;
  }

  async #run(session: Session, request: TurnRequest): Promise<TurnResult> {
    const { peer } = this.#channel;
    this.#channel.forgive();
    const id = peer.newId();
    const { runId, attempt } = request;
    // A launcher that has received the first byte after what was written so far has the whole line of the prompt.
    const promptEnd = this.#channel.written() + 1;
    const toldBefore = this.#acknowledgements.handledEnd;
    const note: SessionNote = {
      conversationId: session.conversationId,
      sessionId: session.id,
      turn: { runId, attempt, promptId: id, promptEnd, toldBefore, asked: {} },
    };
    const turn = new OpenTurn(this.#channel, note, request, []);
    this.#makeRoomForNote(session.conversationId);
    turn.writeNote();
    const answer = peer.request('session/prompt', this.#promptParams(session, request), id);
    session.preamble = '';
    return this.#follow(session, turn, answer);
  }

  async #resume(request: ResumedTurn, note: SessionNote): Promise<TurnResult> {
    const { peer } = this.#channel;
    const session = this.#byId.get(note.sessionId)!;
    const answer = peer.expect(note.turn!.promptId);
    // A turn of which nothing is on record yet knows of no position of its own.
    const told = Math.max(request.told, note.turn!.toldBefore);
    const turn = new OpenTurn(this.#channel, note, request, request.tools, told);
    // Its line ends before what is on record, or was heard meanwhile.
    turn.onAnswered = (id) => this.#noteAnswered(id, Math.max(told, this.#acknowledgements.handledEnd));
    turn.restoreQuestions(request);
    try {
      return await this.#follow(session, turn, answer);
    } catch (error) {
      return request.signal.aborted ? { outcome: 'cancelled' } : failedTurn(error);
    }
  }

  async #follow(session: Session, turn: OpenTurn, answer: Promise<Json>): Promise<TurnResult> {
    const { peer } = this.#channel;
    const { signal } = turn.request;
    session.turn = turn;
    this.#acknowledgements.begin(turn.request);
    const cancel = () => peer.notify('session/cancel', { sessionId: session.id });
    const excess = Promise.withResolvers<never>();
    // Whoever waits for it may have left already.
    excess.promise.catch(() => undefined);
    turn.onExcess = (why) => {
      // What it still tells belongs to no turn any more, and is not listened to for long.
      cancel();
      this.#forget(session);
      excess.reject(new HarnessError('harness_error', `${why} The turn was ended.`));
    };
    const cancelled = cancelDeadline(signal, () => {
      cancel();
      this.#channel.hurry();
    });
    let isGone = false;
    try {
      const result = await Promise.race([answer, cancelled.tooLate, excess.promise]);
      if (result === null) {
        answer.catch(() => undefined);
        this.#forget(session);
        return { outcome: 'cancelled' };
      }
      return signal.aborted ? { outcome: 'cancelled' } : turnResult(result);
    } catch (error) {
      answer.catch(() => undefined);
      isGone = error instanceof HarnessError && error.code === 'harness_exit';
      throw error;
    } finally {
      cancelled.clear();
      session.turn = null;
      await turn.end(!isGone);
      this.#acknowledgements.end(turn.request);
      this.#evict(session);
    }
  }

  #promptParams(session: Session, request: TurnRequest): Json {
    const takes = this.#capabilities.history;
    const { resume, content, source, extras } = request;
    const texts = [session.preamble, takes ? '' : resumePreamble(resume), content];
    const message = {
      source,
      clientMessageId: extras?.clientMessageId ?? null,
      metadata: extras?.metadata ?? null,
    };
    return {
      sessionId: session.id,
      prompt: [
        ...texts.filter((text) => text !== '').map((text) => ({ type: 'text', text })),
        ...promptBlocks(extras?.parts ?? [], this.#capabilities.prompt),
      ],
      _meta: { 'berth.dev': takes && resume.length > 0 ? { message, resume } : { message } },
    };
  }

  async #question(method: QuestionMethod, id: string | number, params: Json, line: LinePlace): Promise<Json> {
    const turn = this.#byId.get(textOf(params['sessionId']))?.turn;
    // A turn that goes on tells what is on record: one that was answered without that is put anew, so that the log has it.
    const isOver = turn ? turn.knows(id, line) : this.#answered.has(id, line.end);
    if (isOver) return new Promise(() => undefined);
    const question = readQuestion(method, params);
    if (!turn || !question || turn.openQuestions >= maxOpenQuestions || !turn.mayRecord(line) || isLong(id)) {
      return refusedQuestion(method);
    }
    const answer = await turn.ask(id, question, params['toolCall'], line);
    this.#noteAnswered(id, line.end);
    return this.#channel.peer.atOnce(answerResult(answer));
  }

  #noteAnswered(id: string | number, end: number): void {
    this.#answered.add(id, end, this.#acknowledgements.acknowledgedEnd);
  }

  /**
   * Closes idle sessions while there are too many, the least recently used first and none that was used after the one
   * given: such a one may be in the hands of a turn that is about to begin.
   */
  #evict(last: Session): void {
    if (!this.#capabilities.history) return;
    for (const session of this.#sessions.values()) {
      if (this.#sessions.size <= maxSessions) return;
      if (session.turn === null) this.closeSession(session.conversationId);
      if (session === last) return;
    }
  }

  #dropNote(conversationId: string): void {
    this.#noted.delete(conversationId);
    this.#channel.note(sessionNote(conversationId), null);
  }

  /** A turn without a note would begin anew with the next process of the service, and run twice. */
  #makeRoomForNote(conversationId: string): void {
    this.#noted.delete(conversationId);
    for (const other of this.#noted) {
      if (this.#noted.size < maxNotedSessions) break;
      if (!this.#sessions.get(other)?.turn) this.#dropNote(other);
    }
    this.#noted.add(conversationId);
  }

  #forget(session: Session): void {
    this.#sessions.delete(session.conversationId);
    this.#byId.delete(session.id);
  }
}

/** With each question the launcher notes all that are open: one of this length is noted as often as there are others. */
function isLong(id: string | number): boolean {
  return JSON.stringify(id).length - '""'.length > maxIdChars;
}

function turnResult({ stopReason, _meta: meta }: Json): TurnResult {
  switch (stopReason) {
    case 'end_turn':
    case 'max_tokens': {
      const ours = isRecord(meta) ? meta['berth.dev'] : undefined;
      const isMessage = isRecord(ours) && ours['reply'] === 'message';
      return isMessage ? { outcome: 'completed', reply: 'message' } : { outcome: 'completed' };
    }
    case 'refusal':
      return { outcome: 'refused' };
    case 'cancelled':
      return { outcome: 'cancelled' };
    case 'max_turn_requests':
      return {
        outcome: 'failed',
        code: 'harness_error',
        message: 'The turn reached its limit of model calls.',
      };
    default:
      return {
        outcome: 'failed',
        code: 'harness_error',
        message: 'The harness ended the turn without a known reason.',
      };
  }
}

/** On abort: `tell` at once, and `tooLate` gives null when the harness has not answered in time after it. */
function cancelDeadline(
  signal: AbortSignal,
  tell: () => void,
): { tooLate: Promise<null>; clear: () => void } {
  let timer: NodeJS.Timeout | undefined;
  let abort = () => undefined as void;
  const tooLate = new Promise<null>((resolve) => {
    abort = () => {
      tell();
      timer = setTimeout(() => resolve(null), cancelTimeoutMs);
    };
    signal.addEventListener('abort', abort, { once: true });
  });
  return {
    tooLate,
    clear: () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    },
  };
}

function within<T>(timeoutMs: number, work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    const timer = setTimeout(() => {
      reject(new HarnessError('harness_error', `The harness made no session within ${timeoutMs / 1000} s.`));
    }, timeoutMs);
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    });
  });
}
