import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { limits } from '../../src/domain/limits.ts';
import { createGuardedCaller, TryLater } from '../../src/services/guarded-call.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { providerStandIn, type ProviderAnswer, type ProviderCall } from '../support/provider-stand-in.ts';
import { telegramFixture, twilioFixture, whatsappFixture } from './fixtures/chat.ts';
import { githubFixture, gitlabFixture, linearFixture } from './fixtures/code.ts';
import { slackFixture } from './fixtures/slack.ts';
import { googleChatFixture } from './fixtures/tokens.ts';
import { outboxOf } from './outbox.ts';

let provider: Awaited<ReturnType<typeof providerStandIn>>;
/** What the provider answers to a look-up, by its page; the calls that are no look-ups succeed. */
let shown: (page: number, asked: URL) => ProviderAnswer;
let pages = 0;
before(async () => {
  provider = await providerStandIn((call: ProviderCall) => {
    if (call.method !== 'GET') return { body: { ok: true, ts: '9.9', id: 1 } };
    pages += 1;
    return shown(pages, new URL(call.path, 'http://provider'));
  });
});
beforeEach(() => {
  pages = 0;
});
after(() => provider?.close());

const many = (length: number, of: (index: number) => unknown) =>
  Array.from({ length }, (_, index) => of(index));
const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000);

/** Of each provider, as of the moment at which it is asked: a page of what others wrote, a page with the answer, and how it says that there is more. */
const paged = [
  {
    fixture: githubFixture,
    page: (found: unknown[], next: number | null): ProviderAnswer => ({
      headers:
        next === null
          ? {}
          : { link: `<https://elsewhere.example/?page=${next}>; rel="next", <x>; rel="last"` },
      body: found,
    }),
    other: (index: number) => ({ id: index, body: 'somebody else' }),
    own: () => ({ id: 7, body: 'Yes, it is.\n\n<!-- berth:event-1:0 -->' }),
    places: (asked: URL) => asked.searchParams.get('page') ?? '1',
    isNewestFirst: false,
  },
  {
    fixture: slackFixture,
    page: (found: unknown[], next: number | null): ProviderAnswer => ({
      body: {
        ok: true,
        messages: found,
        response_metadata: { next_cursor: next === null ? '' : String(next) },
      },
    }),
    other: (index: number) => ({ ts: `1.${index}`, text: 'somebody else' }),
    own: () => ({ ts: '1.7', text: 'Yes', metadata: { event_payload: { mark: 'event-1:0' } } }),
    places: (asked: URL) => asked.searchParams.get('cursor') ?? '1',
    isNewestFirst: false,
  },
  {
    fixture: gitlabFixture,
    page: (found: unknown[], next: number | null): ProviderAnswer => ({
      headers: { 'x-next-page': next === null ? '' : String(next) },
      body: found,
    }),
    other: (index: number) => ({ id: index, body: 'somebody else', created_at: new Date().toISOString() }),
    own: () => ({
      id: 7,
      body: 'Yes, it is.\n\n<!-- berth:event-1:0 -->',
      created_at: new Date().toISOString(),
    }),
    old: { id: 8, body: 'long ago', created_at: minutesAgo(60).toISOString() },
    places: (asked: URL) => asked.searchParams.get('page') ?? '1',
    isNewestFirst: true,
  },
  {
    fixture: twilioFixture,
    page: (found: unknown[], next: number | null): ProviderAnswer => ({
      body: { messages: found, next_page_uri: next === null ? null : `/2010-04-01/x.json?Page=${next}` },
    }),
    other: () => ({
      direction: 'inbound',
      status: 'received',
      body: 'Yes?',
      date_created: new Date().toUTCString(),
    }),
    own: () => ({
      direction: 'outbound-api',
      status: 'sent',
      body: 'Yes, it is.',
      date_created: new Date().toUTCString(),
    }),
    old: { direction: 'inbound', status: 'received', body: 'x', date_created: minutesAgo(60).toUTCString() },
    places: (asked: URL) => asked.searchParams.get('Page') ?? '1',
    isNewestFirst: true,
  },
];

for (const { fixture, page, other, own, old, places } of paged) {
  test(`${fixture.title}: an answer that others have written much behind is found, and not sent again`, async () => {
    const asked: string[] = [];
    shown = (number, url) => {
      asked.push(places(url));
      return page(
        number === 3 ? [...many(99, other), own()] : many(100, other),
        number === 3 ? null : number + 1,
      );
    };
    const box = outboxOf(fixture, provider);
    box.begun();
    assert.deepEqual(await box.send(), { outcome: 'sent', calls: ['GET', 'GET', 'GET'] });
    assert.deepEqual(asked, ['1', '2', '3']);
  });

  test(`${fixture.title}: of what has no end so much is read and no more, and nothing is sent`, async () => {
    shown = (number) => page(many(100, other), number + 1);
    const box = outboxOf(fixture, provider);
    box.begun();
    assert.deepEqual(await box.send(), { outcome: 'doubtful', calls: many(limits.lookupPages, () => 'GET') });
  });

  if (old === undefined) continue;
  test(`${fixture.title}: what was there before the answer is not read`, async () => {
    shown = (number) => page([...many(99, other), old], number + 1);
    const box = outboxOf(fixture, provider);
    box.begun();
    assert.deepEqual(await box.send(), { outcome: 'sent', calls: ['GET', 'POST'] });
  });
}

test('a look-up that Slack refuses with status 200 is no word that the answer is not there', async () => {
  shown = () => ({ body: { ok: false, error: 'missing_scope' } });
  const box = outboxOf(slackFixture, provider);
  box.begun();
  assert.deepEqual(await box.send(), { outcome: 'doubtful', calls: ['GET'] });
  shown = () => ({ body: { ok: false, error: 'internal_error' } });
  const later = outboxOf(slackFixture, provider);
  later.begun();
  await assert.rejects(later.send(), (error) => error instanceof TryLater && !error.isTooMany);
});

test('too many calls are told apart from refusals, however a provider says it', () => {
  const read = (kind: keyof typeof kinds, status: number, headers: Record<string, string>, body: unknown) => {
    const reply = {
      status,
      headers: new Map(Object.entries(headers)),
      body: Buffer.from(JSON.stringify(body)),
    };
    const outcome = kinds[kind].readReply(reply);
    return outcome.outcome === 'retry' ? [outcome.isTooMany === true, outcome.afterMs] : outcome.outcome;
  };
  const date = 'Wed, 21 Oct 2026 07:28:00 GMT';
  const reset = String(Date.parse(date) / 1000 + 90);
  const cases: [unknown, unknown][] = [
    [read('github', 403, { 'retry-after': '60' }, {}), [true, 60_000]],
    [
      read('github', 403, { date, 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': reset }, {}),
      [true, 90_000],
    ],
    [read('github', 429, {}, {}), [true, null]],
    [read('github', 403, { 'x-ratelimit-remaining': '12' }, {}), 'failed'],
    [read('slack', 200, {}, { ok: false, error: 'ratelimited' }), [true, null]],
    [read('slack', 429, { 'retry-after': '3' }, { ok: false, error: 'ratelimited' }), [true, 3_000]],
    [read('slack', 200, {}, { ok: false, error: 'channel_not_found' }), 'failed'],
    [read('whatsapp', 400, {}, { error: { code: 131_056 } }), [true, null]],
    [read('whatsapp', 400, {}, { error: { code: 131_026 } }), 'failed'],
    [
      read('linear', 400, { 'retry-after': '5' }, { errors: [{ extensions: { code: 'RATELIMITED' } }] }),
      [true, 5_000],
    ],
    [read('telegram', 429, {}, { parameters: { retry_after: 7 } }), [true, 7_000]],
    [read('twilio', 503, { 'retry-after': '7' }, {}), [false, 7_000]],
  ];
  for (const [found, expected] of cases) assert.deepEqual(found, expected);
  for (const { kind } of [telegramFixture, whatsappFixture, linearFixture, googleChatFixture])
    assert.deepEqual(read(kind, 429, {}, {}), [true, null], kind);
});

test('an access token that is asked for too often makes its call wait, and counts as no attempt', async () => {
  const busy = await providerStandIn(() => ({ status: 429, headers: { 'retry-after': '30' }, body: {} }));
  const caller = createGuardedCaller(createUrlGuard(['127.0.0.0/8']));
  const call = { method: 'POST' as const, url: `${busy.url}/token`, headers: {}, body: '', token: null };
  const token = { cacheKey: 'x', call, tokenField: 'access_token' };
  await assert.rejects(
    caller.call({ ...call, url: `${busy.url}/send`, token }),
    (error) => error instanceof TryLater && error.isTooMany && error.afterMs === 30_000,
  );
  const box = outboxOf(googleChatFixture, busy);
  assert.deepEqual(await box.send(), { outcome: 'retry', isTooMany: true, calls: [] });
  assert.equal(box.rows.size, 0);
  await busy.close();
});
