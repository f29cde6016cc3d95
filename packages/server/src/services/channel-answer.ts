import type {
  Answer,
  ChannelKind,
  ChannelSetup,
  HttpCall,
  HttpReply,
  ReplyStep,
  SendOutcome,
} from '../domain/ports/channel.ts';
import { limits } from '../domain/limits.ts';
import { UrlRefused } from '../domain/url-guard.ts';
import type { ChannelAnswerStore } from '../store/channel-answers.ts';
import { CallNotSent, TryLater, type GuardedCaller } from './guarded-call.ts';

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
    if (known?.state === 'sending' && step.repeat === 'again' && externalId === null) {
      const found = await lookFor(caller, answer, step, known.beganAt, kind);
      if (found.is === 'there' || found.is === 'unknown') {
        const isThere = found.is === 'there';
        await answers.putAnswer(eventId, place, isThere ? 'sent' : 'doubtful', found.externalId);
        if (isThere) continue;
        return doubtful;
      }
      ({ externalId } = found);
    }
    // It has grown while the agent spoke, and is there: now it becomes the whole one.
    if (externalId !== null) call = step.change!(externalId);
    isGivenUp.throwIfAborted();
    await answers.putAnswer(eventId, place, 'sending', externalId);
    let outcome = await attempt(caller, { ...step, call }, kind);
    if (outcome.outcome === 'failed' && outcome.isGone && externalId !== null) {
      // Somebody has deleted what grew; the answer is owed all the same, as a message of its own.
      externalId = null;
      isGivenUp.throwIfAborted();
      await answers.putAnswer(eventId, place, 'sending', null);
      outcome = await attempt(caller, step, kind);
    }
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
    return { ...outcome, isUntaken: outcome.isTooMany === true || step.lookup === null };
  } catch (error) {
    if (error instanceof UrlRefused) return { outcome: 'failed', reason: error.message };
    if (error instanceof TryLater) {
      const { message: reason, afterMs, isTooMany } = error;
      return { outcome: 'retry', afterMs, reason, isTooMany, isUntaken: true };
    }
    const reason = 'The provider could not be reached.';
    if (error instanceof CallNotSent) return { outcome: 'retry', afterMs: null, reason, isUntaken: true };
    return inDoubt(reason, null);
  }
}

/** The provider will not say what arrived, whenever it is asked. */
export class CannotSay extends Error {}

/** What the provider says has arrived, page by page. Throws CannotSay, and TryLater. */
export async function* arrived(
  caller: GuardedCaller,
  lookup: HttpCall,
  kind: ChannelKind,
  beganAt: Date,
): AsyncGenerator<HttpReply> {
  let call: HttpCall | null = lookup;
  for (let page = 0; call !== null; page += 1) {
    // Whoever writes so much meanwhile must not keep us reading.
    if (page === limits.lookupPages) throw new CannotSay('More came since than is read.');
    const reply = await caller.call(call);
    const outcome = kind.readReply(reply);
    if (outcome.outcome === 'retry') {
      const { reason, afterMs, isTooMany = false } = outcome;
      throw new TryLater(`It could not be found out what arrived. ${reason}`, { afterMs, isTooMany });
    }
    if (outcome.outcome !== 'sent') throw new CannotSay(outcome.reason);
    yield reply;
    call = kind.nextLookup?.(call, reply, beganAt) ?? null;
  }
}

/** The message that an answer has begun to be: whole, growing, not there, or nobody can find out. */
async function lookFor(
  caller: GuardedCaller,
  answer: Answer,
  step: ReplyStep,
  beganAt: Date,
  kind: ChannelKind,
): Promise<{ is: 'there' | 'growing' | 'absent' | 'unknown'; externalId: string | null }> {
  if (step.lookup === null) return { is: 'unknown', externalId: null };
  const stream = step.change && step.mark === `${answer.outboxId}:0` ? kind.stream : null;
  try {
    for await (const reply of arrived(caller, step.lookup, kind, beganAt)) {
      const found = stream?.find(reply, answer);
      if (found) return { is: found.isGrowing ? 'growing' : 'there', externalId: found.externalId };
      const isThere = step.hasArrived ? step.hasArrived(reply, beganAt) : reply.body.includes(step.mark);
      if (isThere) return { is: 'there', externalId: null };
    }
  } catch (error) {
    if (error instanceof CannotSay) return { is: 'unknown', externalId: null };
    throw error;
  }
  return { is: 'absent', externalId: null };
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
