import type { ToolEvent } from '../domain/events.ts';
import type { AdoptedHarness, ResumedTurn, UnfinishedTurn } from '../domain/ports/harness.ts';
import type { Log } from '../domain/log.ts';
import type { Adopted, OwnedLane, RunLife } from '../services/run-life.ts';
import type { AttemptRecord, TurnHistory } from '../services/turn-history.ts';
import type { KeptSandbox } from './kept-sandbox.ts';
import type { Keeper } from './keeper.ts';
import type { Resumption } from './runner.ts';
import { Turn } from './turn.ts';

export interface AdoptedPlace {
  kept: KeptSandbox;
  harness: AdoptedHarness;
}

interface Dependencies {
  life: RunLife;
  keeper: Keeper;
  history: TurnHistory;
  log: Log;
  /** Executes the rest of a turn; it calls the harness before it returns. */
  execute: (turn: Turn, from: Resumption) => void;
}

/**
 * Goes on with the turns that are under way in adopted sandboxes. What a launcher says of them is believed only where the
 * database says the same. Resolves with their conversations; all others are for the usual recovery.
 */
export async function adoptTurns(deps: Dependencies, places: AdoptedPlace[]): Promise<string[]> {
  const lanes = new Map((await deps.life.owned()).map((lane) => [lane.conversationId, lane]));
  const resumed: string[] = [];
  for (const { kept, harness } of places) {
    const underWay = new Set<string>();
    for (const unfinished of harness.unfinished) {
      const lane = lanes.get(unfinished.conversationId);
      if (!lane || !isOf(lane, kept, unfinished)) continue;
      underWay.add(lane.conversationId);
      const isResumed = await resume(deps, kept, harness, unfinished, lane).catch((error: unknown) => {
        deps.log.warn('A turn could not be taken up; it is tried again.', {
          runId: lane.runId,
          error: String(error),
        });
        return false;
      });
      if (isResumed) resumed.push(lane.conversationId);
    }
    harness.begin(underWay);
  }
  return resumed;
}

/** What comes from inside a sandbox says nothing of the runs of another agent, whoever told it their ids. */
function isOf(lane: OwnedLane, { agentId }: KeptSandbox, { runId, attempt }: UnfinishedTurn): boolean {
  return lane.agentId === agentId && lane.runId === runId && lane.attempt === attempt;
}

async function resume(
  deps: Dependencies,
  kept: KeptSandbox,
  harness: AdoptedHarness,
  unfinished: UnfinishedTurn,
  lane: OwnedLane,
): Promise<boolean> {
  const { life, history, keeper } = deps;
  const claim = await life.adopt(lane);
  if (!claim) return false;
  // Not before: what the earlier process still had on its way to the database may come until then.
  await life.forgetUntoldQuestions(lane.runId);
  const asked = await life.askedQuestions(lane.runId);
  const known = new Set(unfinished.requestIds);
  // The harness waits for an answer that nobody could give it.
  if (asked.some(({ question, state }) => state === 'open' && !known.has(question.requestId))) return false;
  const record = await history.attempt(claim);
  const turn = new Turn(life, claim, restoredLog(record));
  const waiting = asked.filter(({ question }) => known.has(question.requestId));
  deps.execute(turn, resumption(kept, keeper, harness, claim, record, waiting));
  if (lane.cancelRequested) turn.stop('cancel');
  return true;
}

function resumption(
  kept: KeptSandbox,
  keeper: Keeper,
  harness: AdoptedHarness,
  claim: Adopted,
  record: AttemptRecord,
  asked: Resumption['asked'],
): Resumption {
  const hold = keeper.holdAdopted(kept, claim.conversationId);
  return { hold, harness, told: claim.told, tools: record.tools.map(toolUpdate), asked };
}

function restoredLog({ content, needsBreak, tools, artifactIds }: AttemptRecord) {
  return {
    content,
    artifactIds,
    needsBreak,
    openTools: tools.filter(({ phase }) => phase !== 'finished').map(({ event }) => event),
  };
}

function toolUpdate({ phase, event }: AttemptRecord['tools'][number]): ResumedTurn['tools'][number] {
  const { toolCallId, title, kind: toolKind, input, output } = event;
  const update: ResumedTurn['tools'][number] = {
    kind: 'tool',
    phase,
    toolCallId,
    title,
    toolKind,
    status: statusOf(event),
  };
  if (input !== undefined) update.input = input;
  if (output !== undefined) update.output = output;
  return update;
}

function statusOf({ status }: ToolEvent): ResumedTurn['tools'][number]['status'] {
  return status === 'cancelled' || status === 'unknown' ? 'failed' : status;
}
