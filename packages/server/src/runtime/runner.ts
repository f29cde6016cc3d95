import { cleanText } from '../domain/clean-text.ts';
import { isDatabaseAway } from '../domain/database-away.ts';
import { isDiskFull } from '../domain/disk-full.ts';
import type { RunError } from '../domain/errors.ts';
import { limitEndOf } from '../domain/limit-end.ts';
import type { Log } from '../domain/log.ts';
import { defaultManifest, type Manifest } from '../domain/manifest.ts';
import type {
  AdoptedHarness,
  HarnessConnection,
  HarnessUpdate,
  ResumedTurn,
  TurnResult,
} from '../domain/ports/harness.ts';
import type { Answer, Question } from '../domain/questions.ts';
import type { AskedQuestion, RunLife } from '../services/run-life.ts';
import type { TurnHistory } from '../services/turn-history.ts';
import { holdSandbox } from './hold-sandbox.ts';
import type { Hold, Keeper } from './keeper.ts';
import { Questions } from './questions.ts';
import type { Turn } from './turn.ts';

export interface RunnerDependencies {
  life: RunLife;
  keeper: Keeper;
  history: TurnHistory;
  /** An agent's active deployment; a first one that is still being made is waited for. Null = there is none to come. */
  waitForActive: (
    agentId: string,
    signal: AbortSignal,
  ) => Promise<{ id: string; commit: string; manifest: Manifest } | null>;
  maxAttempts: number;
  log: Log;
  /** How long a harness may take to stop before its sandbox is ended. */
  stopGraceMs?: number;
  /** For tests. */
  roomDelayMs?: number;
}

const STOP_GRACE_MS = 5_000;
const RETRY_DELAY_MS = 200;
const REFUSAL_CHARS = 4_000;
const NOT_BEGUN = 'The harness ended before it had begun with the message.';

/** Executes one attempt of a run, from its sandbox to its end. Never rejects; every way out settles or gives up. */
export function runTurn(deps: RunnerDependencies, turn: Turn): Promise<void> {
  return guarded(deps, turn, () => execute(deps, turn));
}

async function guarded(deps: RunnerDependencies, turn: Turn, work: () => Promise<void>): Promise<void> {
  const { claim } = turn;
  const log = deps.log.child({ runId: claim.runId, agentId: claim.agentId });
  try {
    await work();
  } catch (error) {
    if (turn.signal.aborted) return void (await endStopped(turn).catch(report));
    log.error('A turn failed inside the service.', { error: String(error), stack: (error as Error).stack });
    const failure: RunError = { code: 'harness_error', error: 'The service failed to execute the turn.' };
    const { maxAttempts } = deps;
    const reason = 'The service failed to execute the turn.';
    // What fails by itself would else begin anew until the run's time is over.
    const countsAlways = !isDatabaseAway(error) && !isDiskFull(error);
    const givenUp = { reason, maxAttempts, error: failure, delayMs: 1_000, countsAlways };
    await turn.giveUp(givenUp).catch(report);
  }

  /** The database does not answer: the upkeep finds the run without an owner and ends the attempt. */
  function report(error: unknown): void {
    log.error('A turn could not be ended.', { error: String(error) });
  }
}

async function execute(deps: RunnerDependencies, turn: Turn): Promise<void> {
  const { claim } = turn;
  const { keeper, life } = deps;
  // What was ready when it was claimed may have ended meanwhile.
  const waits = claim.waits || !keeper.isReady(claim);
  if (waits && !claim.waits && !(await life.setWaits(claim, true))) return turn.abandon();
  const deployment = await deploymentOf(deps, turn);
  if (!deployment) {
    return turn.settle('failed', {
      code: 'deployment_missing',
      error: 'The agent has no deployment that is ready; push to its repository or look at its deployments.',
    });
  }
  const { agentId, orgId, slot, model, generation } = claim;
  const wish = { agentId, orgId, slot, model, generation, deployment };
  const reading = Promise.all([
    claim.attempt > 1 ? deps.history.interrupted(claim.runId) : [],
    claim.hasExtras ? deps.life.extras(claim.runId) : null,
  ]);
  // Looked at below: what cannot be read must not leave a sandbox held that is just being started.
  reading.catch(() => undefined);
  const hold = await holdSandbox(deps, turn, wish);
  if (!hold) return;
  const [resume, extras] = await reading.catch((error: unknown) => {
    hold.release();
    throw error;
  });
  // On record before the harness knows of it: from here on the attempt counts.
  if (waits && !(await counts(deps, turn, hold))) return turn.abandon();
  turn.questions = new Questions(deps.life, turn.writer, deployment.manifest.permissions);
  await follow(deps, turn, hold, (ended) =>
    hold.kept.connection.prompt({
      ...callbacks(turn, ended),
      content: claim.content,
      source: claim.source,
      extras,
      history: () => deps.history.before(claim),
      resume,
    }),
  );
}

/** False: the lane is another owner's. */
async function counts({ life }: RunnerDependencies, { claim }: Turn, hold: Hold): Promise<boolean> {
  let isOurs = false;
  try {
    isOurs = await life.setWaits(claim, false);
    return isOurs;
  } finally {
    if (!isOurs) hold.release();
  }
}

/** Whether the turn ends with this, and its harness lives: else what ended the sandbox decides how the turn goes on. */
function isOver({ stopReason }: Turn, result: TurnResult): boolean {
  if (stopReason === 'drain' || stopReason === 'lost') return false;
  return !('code' in result && result.code === 'harness_exit');
}

/** From the prompt to the end of the attempt. */
async function follow(
  deps: RunnerDependencies,
  turn: Turn,
  hold: Hold,
  prompt: (ended: Promise<void>) => Promise<TurnResult>,
): Promise<void> {
  const ended = Promise.withResolvers<void>();
  try {
    const result = await stopped(prompt(ended.promise), turn.signal, deps.stopGraceMs ?? STOP_GRACE_MS);
    if (result === 'ignored') await hold.kept.end('A harness did not stop when it was asked to.');
    else if (isOver(turn, result)) hold.done();
    await conclude(deps, turn, hold, result === 'ignored' ? { outcome: 'cancelled' } : result);
  } finally {
    if (turn.stopReason === 'lost') closeSession(hold.kept.connection, turn.claim.conversationId);
    hold.release();
    ended.resolve();
  }
}

function callbacks(turn: Turn, ended: Promise<void>) {
  const { runId, attempt, conversationId } = turn.claim;
  return {
    runId,
    attempt,
    conversationId,
    onUpdate(update: HarnessUpdate): void {
      turn.isBegun = true;
      turn.log.take(update);
    },
    onTold(position: number): void {
      turn.isBegun = true;
      turn.log.told(position);
    },
    onQuestion(question: Question, recorded: () => void): Promise<Answer> {
      turn.isBegun = true;
      turn.log.pause();
      return turn.questions!.ask(question, recorded);
    },
    onRecord(): Promise<void> {
      turn.isBegun = true;
      return turn.recorded();
    },
    onAcknowledge: () => turn.recorded(),
    ended,
    signal: turn.signal,
  };
}

/** A turn that an earlier process of the service began, and that its harness goes on with. */
export interface Resumption {
  hold: Hold;
  harness: AdoptedHarness;
  told: number;
  tools: ResumedTurn['tools'];
  asked: AskedQuestion[];
}

/** Executes the rest of an attempt; calls the harness before it returns. Never rejects. */
export function resumeTurn(deps: RunnerDependencies, turn: Turn, from: Resumption): Promise<void> {
  const manifest = turn.claim.manifest ?? defaultManifest;
  const questions = new Questions(deps.life, turn.writer, manifest.permissions);
  turn.questions = questions;
  const asked = new Map(from.asked.map((one) => [one.question.requestId, one]));
  return guarded(deps, turn, () =>
    follow(deps, turn, from.hold, (ended) =>
      from.harness.resume({
        ...callbacks(turn, ended),
        told: from.told,
        tools: from.tools,
        onAskedBefore: (requestId) => {
          const one = asked.get(requestId);
          return one ? questions.askedBefore(one.question, one.state === 'cancelled') : null;
        },
      }),
    ),
  );
}

async function deploymentOf(deps: RunnerDependencies, turn: Turn) {
  const { claim } = turn;
  if (claim.deploymentId !== null && claim.commit !== null) {
    return { id: claim.deploymentId, commit: claim.commit, manifest: claim.manifest ?? defaultManifest };
  }
  const active = await deps.waitForActive(claim.agentId, turn.signal);
  if (active) {
    claim.deploymentId = active.id;
    await deps.life.bindDeployment(claim.runId, active.id);
  }
  return active;
}

/** The prompt's result, or `ignored` when it has not ended some time after the turn was stopped. */
async function stopped(
  prompt: Promise<TurnResult>,
  signal: AbortSignal,
  graceMs: number,
): Promise<TurnResult | 'ignored'> {
  let timer: NodeJS.Timeout | undefined;
  let onAbort = () => {};
  const ignored = new Promise<'ignored'>((resolve) => {
    onAbort = () => (timer = setTimeout(() => resolve('ignored'), graceMs));
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([prompt, ignored]);
  } finally {
    signal.removeEventListener('abort', onAbort);
    clearTimeout(timer);
    prompt.catch(() => undefined);
  }
}

async function conclude(deps: RunnerDependencies, turn: Turn, hold: Hold, result: TurnResult): Promise<void> {
  if (turn.stopReason !== null) return endStopped(turn);
  if (result.outcome === 'completed') return turn.settle('completed', null, result.reply ?? 'task');
  if (result.outcome === 'refused') return turn.settle('failed', refusal(turn));
  if (result.outcome === 'cancelled') {
    return turn.settle('failed', { code: 'harness_error', error: 'The harness stopped the turn by itself.' });
  }
  const { code, message } = result;
  if (code !== 'harness_exit') return turn.settle('failed', { code, error: message });
  // The process is gone. What ended it decides whether the turn is to blame.
  const exit = await hold.kept.gone.catch(() => null);
  const failure: RunError = { code, error: message };
  const limit = exit && limitEndOf(exit);
  if (limit) return turn.settle('failed', limit);
  // A first process that ended has a code; without one it was ended from outside, together with all that was in it.
  const wasEnded = exit?.reason === 'killed' || exit?.code === null;
  // Else the harness itself is to blame, if it had the prompt: one that had ended before is no fault of this message.
  const blameless = wasEnded ? 'The sandbox was ended.' : turn.isBegun ? null : NOT_BEGUN;
  const reason = hold.kept.endedBy ?? blameless;
  if (reason === null) return turn.settle('failed', failure);
  await turn.giveUp({ reason, maxAttempts: deps.maxAttempts, error: failure, delayMs: RETRY_DELAY_MS });
}

/** Of what the agent said the beginning: an error is no place for a book, and the deltas have the rest. */
function refusal(turn: Turn): RunError {
  const said = turn.log.content.trim();
  const error = said === '' ? 'The agent refused, and did not say why.' : said;
  return {
    code: 'refused',
    error: error.length <= REFUSAL_CHARS ? error : cleanText(`${error.slice(0, REFUSAL_CHARS)}…`),
  };
}

async function endStopped(turn: Turn): Promise<void> {
  switch (turn.stopReason) {
    case 'cancel':
      return turn.settle('cancelled', null);
    case 'timeout':
      return turn.settle('failed', { code: 'timeout', error: 'The turn took longer than it may.' });
    case 'drain': {
      const error: RunError = { code: 'lost', error: 'The service was stopped.' };
      const reason = 'The service was stopped; the run goes on with its next start.';
      return turn.giveUp({ reason, maxAttempts: null, error, delayMs: 0 });
    }
    case 'lost':
    case null:
      return turn.abandon();
  }
}

function closeSession(connection: HarnessConnection, conversationId: string): void {
  connection.closeSession(conversationId);
}
