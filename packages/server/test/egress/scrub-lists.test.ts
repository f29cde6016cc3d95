import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import type { BrokeredSecret } from '../../src/domain/ports/secret-broker.ts';
import { scrubText } from '../../src/egress/broker/scrub.ts';
import { BrokerSession } from '../../src/egress/broker/session.ts';

const target = () => ({ host: 'api.example.com', port: 443 });
const hosts = ['api.example.com:443'];
const head = { method: 'GET', path: '/', headers: [] as [string, string][] };

/** As the store gives them: new bytes with each read. */
function sessionOf(now: () => Record<string, string>, before: () => Record<string, string> = () => ({})) {
  const secretsOf = (values: Record<string, string>): BrokeredSecret[] =>
    Object.entries(values).map(([key, value]) => ({ key, hosts, value: Buffer.from(value) }));
  return new BrokerSession({
    seed: randomBytes(32),
    secrets: secretsOf(now()).map(({ key }) => ({ key, hosts })),
    earlierHosts: [],
    read: async () => ({ secrets: secretsOf(now()), earlier: secretsOf(before()) }),
  });
}

test('requests share the list of what their answers are searched for until a value changes, and no longer', async () => {
  const values = { TOKEN: 'first_value_0123' };
  const session = sessionOf(() => values);
  const placeholder = session.placeholders.textOf('TOKEN');
  const { search } = session.search(target());
  await session.fill(target(), head);
  const first = search.scrubs;
  await Promise.all([session.fill(target(), head), session.fill(target(), head)]);
  assert.equal(search.scrubs, first, 'made once');
  assert.equal(scrubText(search.scrubs, 'first_value_0123'), placeholder);
  values.TOKEN = 'second_value_456';
  await session.fill(target(), head);
  assert.notEqual(search.scrubs, first);
  assert.equal(scrubText(search.scrubs, 'second_value_456'), placeholder);
});

test('a host with more than 256 KiB of values gets no request, and the program is told why', async () => {
  const long = 'v'.repeat(8 * 1024);
  const many = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`KEY_${index}`, long]));
  let values = many(32);
  const session = sessionOf(
    () => values,
    () => ({ ...many(40), OLD: 'what_it_was_before' }),
  );
  const { search } = session.search(target());
  await session.fill(target(), head);
  assert.equal(
    scrubText(search.scrubs, `what_it_was_before ${long}`),
    `${session.placeholders.textOf('OLD')} ${session.placeholders.textOf('KEY_31')}`,
    'what they were before is not counted, and searched for',
  );
  values = { ...values, MORE: 'one_more' };
  await assert.rejects(session.fill(target(), head), {
    reason: 'bad_request',
    message:
      'The brokered secrets of api.example.com:443 have more than 256 KiB together; broker fewer or shorter ones for it.',
  });
});
