import { boundedKey } from '../domain/bounded-key.ts';
import { limits } from '../domain/limits.ts';
import { isTerminal } from '../domain/nouns.ts';
import type { ChannelKind, ChannelSetup, SendOutcome } from '../domain/ports/channel.ts';
import type { DueEvent } from '../store/inbound-queue.ts';
import { sendAnswer } from './channel-answer.ts';
import {
  backoffMs,
  checkMs,
  principalOf,
  unanswered,
  type InboundWorkDependencies,
  type Worked,
} from './inbound-terms.ts';

type Dependencies = Pick<
  InboundWorkDependencies,
  'queue' | 'answers' | 'runs' | 'caller' | 'mail' | 'streams'
>;

/** In the history of an event: the service ended so often during its turn that the turn was given up, and another begins. */
const turnLost = 'turn_lost';
/** The longest that a run is listened to in one go. */
const listenMs = 600_000;

const again = ({
  reason,
  afterMs,
  isTooMany = false,
}: Extract<SendOutcome, { outcome: 'retry' }>): Worked => ({
  retry: reason,
  afterMs,
  isTooMany,
});

/** From the end of an event's turn to its answer. */
export function createInboundEnd({ queue, answers, runs, caller, mail, streams }: Dependencies) {
  return {
    /**
     * Resolves when the run has ended, or with false when that was not heard for long, or not before `stopped`. Meanwhile its
     * answer is shown as it grows, where the channel wants that; no call for that is under way any more when this resolves.
     */
    async hasEnded(due: DueEvent, runId: string, stopped: AbortSignal): Promise<boolean> {
      const over = new AbortController();
      const shown = streams.show(due, runId, over.signal);
      try {
        const { run } = await runs.outcome(principalOf(due), runId, listenMs, stopped);
        return isTerminal(run.status);
      } finally {
        over.abort();
        await shown;
      }
    },

    /** Nothing more is sent once `isGivenUp`. */
    async finish(
      due: DueEvent,
      runId: string,
      kind: ChannelKind,
      setup: ChannelSetup,
      isGivenUp: AbortSignal,
    ): Promise<Worked> {
      const { run, message } = await runs.outcome(principalOf(due), runId, 0);
      if (!isTerminal(run.status)) {
        await queue.postpone(due.id, checkMs, null);
        return 'over';
      }
      const lost = due.history.filter(({ reason }) => reason === turnLost).length;
      if (run.status === 'failed' && run.error?.code === 'lost' && lost < limits.inboundLostTurns) {
        await queue.beginAgain(due.id, lost === 0 ? 0 : backoffMs(lost), turnLost);
        return 'over';
      }
      const hasAnswer = run.status === 'completed' && message !== null && message.content.trim() !== '';
      const broken = hasAnswer ? null : await streams.breakOff(due, runId, kind, setup, isGivenUp);
      if (broken?.outcome === 'retry') return again(broken);
      if (run.status !== 'completed') {
        await queue.settle(due.id, 'failed', run.error?.error ?? `The run was ${run.status}.`);
        return 'over';
      }
      if (due.replyTo?.['sample'] === unanswered['sample']) {
        await queue.settle(due.id, 'done', 'sample');
        return 'over';
      }
      if (due.replyTo === null || message === null || message.content.trim() === '') {
        await queue.settle(due.id, 'done', null);
        return 'over';
      }
      const answer = { text: message.content, replyTo: due.replyTo, outboxId: due.id };
      const outcome = await sendAnswer({ answers, caller, isGivenUp }, due.id, answer, kind, setup);
      if (outcome.outcome === 'retry') return again(outcome);
      if (outcome.outcome !== 'sent') {
        await queue.settle(due.id, 'failed', outcome.reason);
        return 'over';
      }
      if (kind.name === 'email') {
        const key = boundedKey(`${mail.sentKey(answer, setup)}|${String(due.replyTo['to'])}`);
        await answers.rememberConversation(due.channelId, [key], run.conversationId);
      }
      await queue.settle(due.id, 'done', null);
      return 'over';
    },
  };
}
