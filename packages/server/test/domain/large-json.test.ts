import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jsonText, parsedTexts } from '../../src/domain/large-json.ts';
import { eventsOf } from '../../src/store/events.ts';

const reader = { orgId: 'o', keyId: 'k' };
const large = (at: number) => ({
  at,
  names: Object.fromEntries(Array.from({ length: 50_000 }, (_, n) => [`n${n}`, n])),
});

/** How many turns of the event loop there were before each of these was there. */
async function turnsBefore(all: Promise<unknown>[]): Promise<number[]> {
  let turns = 0;
  let isOver = false;
  const next = (): void => {
    turns += 1;
    if (!isOver) setImmediate(next);
  };
  setImmediate(next);
  const seen = await Promise.all(all.map((one) => one.then(() => turns)));
  isOver = true;
  return seen;
}
const differ = (turns: number[]) => assert.ok(new Set(turns).size > 1, String(turns));

test('what is small is made and read at once, and what is large as it would be', async () => {
  assert.equal(jsonText(reader, { a: [1, 'b', null] }), '{"a":[1,"b",null]}');
  assert.deepEqual(parsedTexts(reader, ['{"a":1}', null, '"b"']), [{ a: 1 }, null, 'b']);
  assert.deepEqual(parsedTexts(reader, []), []);
  const text = jsonText(reader, large(1));
  assert.ok(text instanceof Promise);
  assert.equal(await text, JSON.stringify(large(1)));
  const values = parsedTexts(reader, [JSON.stringify(large(1)), null, JSON.stringify(large(2))]);
  assert.ok(values instanceof Promise);
  assert.deepEqual(await values, [large(1), null, large(2)]);
});

test('what fails fails its reader alone', async () => {
  const failing = jsonText(reader, { ...large(1), toJSON: () => assert.fail('not this') });
  const broken = parsedTexts(reader, ['{'.repeat(20_000)]);
  const whole = jsonText(reader, large(2));
  await assert.rejects(async () => failing, /not this/);
  await assert.rejects(async () => broken, SyntaxError);
  assert.equal(await whole, JSON.stringify(large(2)));
});

test('large answers that are made at once, and large events that are read at once, leave turns of the event loop in between', async () => {
  const texts = Array.from({ length: 8 }, (_, at) => Promise.resolve(jsonText(reader, large(at))));
  differ(await turnsBefore(texts));
  const row = { conversation_id: 'c', seq: 1, run_id: 'r', type: 'message.created', at: new Date() };
  const rows = Array.from({ length: 8 }, (_, at) =>
    eventsOf(reader, [{ ...row, data: JSON.stringify(large(at)) }]),
  );
  differ(await turnsBefore(rows));
  assert.deepEqual((await rows[3]!)[0]!.data, large(3));
});
