import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fixtures } from './fixtures/all.ts';

const cases = ['stale', 'own_message', 'edited', 'deleted', 'retried', 'inLatin1'] as const;
/** What a provider never sends, and why, so that a case that is missing is missing on purpose. */
const absent: Record<string, Partial<Record<(typeof cases)[number], string>>> = {
  slack: {},
  telegram: {
    stale: 'The secret token has no time; the update id stops replays.',
    deleted: 'Bots are not told of deleted messages.',
  },
  discord: {
    own_message: 'Only people interact.',
    edited: 'An interaction is never changed.',
    deleted: 'An interaction is never taken back.',
  },
  whatsapp: {
    stale: 'The signature has no time; the message id stops replays.',
    own_message: 'What we send comes back as statuses, which are not messages.',
    edited: 'The Cloud API tells nothing of edits.',
    deleted: 'The Cloud API tells nothing of deletions.',
  },
  twilio: {
    stale: 'The signature has no time; the message SID stops replays.',
    own_message: 'What we send comes back as statuses, which are not messages.',
    edited: 'An SMS is never changed.',
    deleted: 'An SMS is never taken back.',
    inLatin1: 'Forms of Twilio are UTF-8.',
  },
  teams: {},
  googlechat: {
    own_message: 'An app gets no event of its own messages.',
    edited: 'Apps are not told of edits.',
    deleted: 'Apps are not told of deletions.',
  },
  github: { stale: 'The signature has no time; the delivery id stops replays.' },
  gitlab: { stale: 'The secret token has no time; the idempotency key stops replays.' },
  'gitlab, signing token': {},
  linear: {},
};
const unmarked = 'Attempts are not numbered; the delivery key is the same.';
const mailOrAnything =
  'It has no messages that are changed later, and its own ones are known by their headers.';

for (const fixture of fixtures) {
  test(`${fixture.title}: every case has a request of it, or a reason why there is none`, () => {
    const general = { retried: unmarked, ...absent[fixture.title] };
    const given: Record<string, string | undefined> =
      fixture.kind === 'email' || fixture.kind === 'generic'
        ? {
            own_message: mailOrAnything,
            edited: mailOrAnything,
            deleted: mailOrAnything,
            inLatin1: 'Mail names the charset of each of its parts.',
            stale: 'A password or a token has no time.',
            ...general,
          }
        : general;
    for (const name of cases) {
      const isThere =
        name === 'stale'
          ? fixture.staleAfterMs !== null
          : name === 'retried' || name === 'inLatin1'
            ? fixture[name] !== undefined
            : fixture.ignored[name] !== undefined;
      assert.ok(isThere || given[name], `${fixture.title} has no case "${name}"`);
    }
  });
}
