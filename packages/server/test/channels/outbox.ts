import { kinds } from '../../src/channels/kinds.ts';
import type { ReplyTo } from '../../src/domain/ports/channel.ts';
import { sendAnswer } from '../../src/services/channel-answer.ts';
import { createGuardedCaller } from '../../src/services/guarded-call.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import type { AnswerRow, AnswerState } from '../../src/store/channel-answers.ts';
import type { ProviderCall } from '../support/provider-stand-in.ts';
import { setupOf, signed, type Fixture } from './fixtures/fixture.ts';

const caller = createGuardedCaller(createUrlGuard(['127.0.0.0/8']));

/** One event's answers at a stand-in of its provider, and a try at sending them. */
export function outboxOf(
  fixture: Fixture,
  provider: { url: string; calls: ProviderCall[] },
  over: { apiBaseUrl?: string; replyTo?: ReplyTo } = {},
) {
  const rows = new Map<number, AnswerRow>();
  const answers = {
    answers: async () => new Map(rows),
    async putAnswer(_id: string, place: number, state: AnswerState) {
      const beganAt = state === 'sending' ? new Date() : (rows.get(place)?.beganAt ?? new Date());
      rows.set(place, { state, beganAt, externalId: null });
    },
    async removeAnswer(_id: string, place: number) {
      rows.delete(place);
    },
  };
  const setup = setupOf(fixture, { apiBaseUrl: over.apiBaseUrl ?? provider.url });
  const event = kinds[fixture.kind].parse(signed(fixture, fixture.message({})), setup).events[0]!;
  const replyTo = over.replyTo ?? event.replyTo!;
  return {
    rows,
    /** As if the process had been killed between a call and its answer. */
    begun(beganAt = new Date()) {
      rows.set(0, { state: 'sending', beganAt, externalId: null });
    },
    async send() {
      const before = provider.calls.length;
      const answer = { text: 'Yes, it is.', replyTo, outboxId: 'event-1' };
      const outcome = await sendAnswer(
        { answers, caller, isGivenUp: new AbortController().signal },
        'event-1',
        answer,
        kinds[fixture.kind],
        setup,
      );
      const calls = provider.calls.slice(before).filter(({ path }) => !path.endsWith('/token'));
      const isTooMany = 'isTooMany' in outcome && outcome.isTooMany === true;
      return {
        outcome: outcome.outcome,
        ...(isTooMany && { isTooMany }),
        calls: calls.map(({ method }) => method),
      };
    },
  };
}
