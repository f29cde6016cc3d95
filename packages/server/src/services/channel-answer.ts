import type {
  Answer,
  ChannelKind,
  ChannelSetup,
  HttpCall,
  HttpReply,
  ReplyStep,
  SendOutcome,
} from '../domain/ports/channel.ts';
import { UrlRefused } from '../domain/url-guard.ts';
import type { ChannelAnswerStore } from '../store/channel-answers.ts';
import { CallNotSent, type GuardedCaller } from './guarded-call.ts';

interface Means {
  answers: Pick<ChannelAnswerStore, 'answers' | 'putAnswer' | 'removeAnswer'>;
  caller: GuardedCaller;
  /** Somebody else goes on with it: the next message is theirs. */
  isGivenUp: AbortSignal;
}

/** Begins the reason of an event whose answer may have been sent. */
export const mayHaveBeenSent = 'may_have_been_sent';

const doubtful = {
  outcome: 'doubtful' as const,
  reason: `${mayHaveBeenSent}: nobody heard how sending the answer ended, and this provider cannot be asked. Replay the event to send it again.`,
} satisfies SendOutcome;

/**
 * Sends what is not sent yet, in order, and nothing twice. What may have been sent already, since its call began and nobody
 * heard how it ended, is looked for; where the provider cannot be asked, that is told, and it is not sent again.
 */
export async function sendAnswer(
  { answers, caller, isGivenUp }: Means,
  eventId: string,
  answer: Answer,
  kind: ChannelKind,
  setup: ChannelSetup,
): Promise<SendOutcome> {
  const before = await answers.answers(eventId);
  const steps = kind.reply(answer, setup, Date.now());
  for (const [place, step] of steps.entries()) {
    const known = before.get(place);
    if (known?.state === 'sent') continue;
    if (known?.state === 'doubtful') return doubtful;
    let call = step.call;
    let externalId = step.change ? (known?.externalId ?? null) : null;
    if (known?.state === 'sending' && step.change && kind.stream && place === 0 && externalId === null) {
      const reply = await ask(caller, step.lookup!);
      const found = kind.stream.find(reply, answer);
      if (found ? !found.isGrowing : reply.body.includes(step.mark)) {
        await answers.putAnswer(eventId, place, 'sent', found?.externalId ?? null);
        continue;
      }
      externalId = found?.externalId ?? null;
    } else if (known?.state === 'sending' && step.repeat === 'again' && externalId === null) {
      if (step.lookup === null) {
        await answers.putAnswer(eventId, place, 'doubtful', null);
        return doubtful;
      }
      if (await hasArrived(caller, step, known.beganAt)) {
        await answers.putAnswer(eventId, place, 'sent', null);
        continue;
      }
    }
    // It has grown while the agent spoke, and is there: now it becomes the whole one.
    if (externalId !== null) call = step.change!(externalId);
    isGivenUp.throwIfAborted();
    await answers.putAnswer(eventId, place, 'sending', externalId);
    const outcome = await attempt(caller, { ...step, call }, kind);
    if (outcome.outcome === 'sent') await answers.putAnswer(eventId, place, 'sent', outcome.externalId);
    else {
      if (outcome.outcome === 'retry' && outcome.isUntaken && externalId === null)
        await answers.removeAnswer(eventId, place);
      if (outcome.outcome === 'retry') return outcome;
      await answers.putAnswer(eventId, place, outcome.outcome, null);
      return outcome;
    }
    if (place < steps.length - 1) await pause(kind.paceMs);
  }
  return { outcome: 'sent', externalId: null };
}

/** `isUntaken`: the provider surely did nothing. */
type Attempted =
  | Exclude<SendOutcome, { outcome: 'retry' }>
  | (Extract<SendOutcome, { outcome: 'retry' }> & { isUntaken: boolean });

export async function attempt(
  caller: GuardedCaller,
  step: Pick<ReplyStep, 'call' | 'repeat' | 'lookup'>,
  kind: ChannelKind,
): Promise<Attempted> {
  /** Nobody knows whether it was done; who can be asked, or does nothing twice, gets another attempt. */
  const inDoubt = (reason: string, afterMs: number | null): Attempted =>
    step.repeat === 'again' && step.lookup === null
      ? doubtful
      : { outcome: 'retry', afterMs, reason, isUntaken: false };
  try {
    const reply = await caller.call(step.call);
    const outcome = kind.readReply(reply);
    if (outcome.outcome !== 'retry') return outcome;
    // What stands between us and the provider does not know what the provider did.
    if ([408, 502, 504].includes(reply.status)) return inDoubt(outcome.reason, outcome.afterMs);
    const isTooMany = reply.status === 429;
    return { ...outcome, isUntaken: isTooMany || step.lookup === null, isTooMany };
  } catch (error) {
    if (error instanceof UrlRefused) return { outcome: 'failed', reason: error.message };
    const reason = 'The provider could not be reached.';
    if (error instanceof CallNotSent) return { outcome: 'retry', afterMs: null, reason, isUntaken: true };
    return inDoubt(reason, null);
  }
}

/** Asks the provider what arrived. */
export async function ask(caller: GuardedCaller, lookup: HttpCall): Promise<HttpReply> {
  const reply = await caller.call(lookup);
  if (reply.status >= 300)
    throw new Error(`The provider could not say what arrived: status ${reply.status}.`);
  return reply;
}

async function hasArrived(caller: GuardedCaller, step: ReplyStep, beganAt: Date): Promise<boolean> {
  const reply = await ask(caller, step.lookup!);
  return step.hasArrived ? step.hasArrived(reply, beganAt) : reply.body.includes(step.mark);
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
