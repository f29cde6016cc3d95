import type { Answer, ChannelKind, ChannelSetup, ReplyStep, SendOutcome } from '../domain/ports/channel.ts';
import { UrlRefused } from '../domain/url-guard.ts';
import type { ChannelAnswerStore } from '../store/channel-answers.ts';
import type { GuardedCaller } from './guarded-call.ts';

interface Means {
  answers: Pick<ChannelAnswerStore, 'answers' | 'putAnswer'>;
  caller: GuardedCaller;
}

/**
 * Sends what is not sent yet, in order. What may have been sent already, since its call began and nobody heard how it
 * ended, is looked for before it is sent again.
 */
export async function sendAnswer(
  { answers, caller }: Means,
  eventId: string,
  answer: Answer,
  kind: ChannelKind,
  setup: ChannelSetup,
): Promise<SendOutcome> {
  const before = await answers.answers(eventId);
  const steps = kind.reply(answer, setup, Date.now());
  for (const [place, step] of steps.entries()) {
    const state = before.get(place);
    if (state === 'sent') continue;
    if (state === 'sending' && (await hasArrived(caller, step))) {
      await answers.putAnswer(eventId, place, 'sent', null);
      continue;
    }
    await answers.putAnswer(eventId, place, 'sending', null);
    const outcome = await attempt(caller, step, kind);
    if (outcome.outcome !== 'sent') {
      if (outcome.outcome === 'failed') await answers.putAnswer(eventId, place, 'failed', null);
      return outcome;
    }
    await answers.putAnswer(eventId, place, 'sent', outcome.externalId);
    if (place < steps.length - 1) await pause(kind.paceMs);
  }
  return { outcome: 'sent', externalId: null };
}

async function attempt(caller: GuardedCaller, step: ReplyStep, kind: ChannelKind): Promise<SendOutcome> {
  try {
    return kind.readReply(await caller.call(step.call));
  } catch (error) {
    if (error instanceof UrlRefused) return { outcome: 'failed', reason: error.message };
    return { outcome: 'retry', afterMs: null, reason: 'The provider could not be reached.' };
  }
}

/** Where the provider cannot be asked, the message goes out once more: twice is better than never. */
async function hasArrived(caller: GuardedCaller, step: ReplyStep): Promise<boolean> {
  if (step.repeat === 'same' || step.lookup === null) return false;
  const reply = await caller.call(step.lookup);
  if (reply.status >= 300)
    throw new Error(`The provider could not say what arrived: status ${reply.status}.`);
  return reply.body.includes(step.mark);
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
