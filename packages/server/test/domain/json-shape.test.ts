import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isLargeValue, shapeOf, type ShapeLimits } from '../../src/domain/json-shape.ts';
import { limits } from '../../src/domain/limits.ts';
import { atOnce } from '../../src/domain/slices.ts';
import { seeded } from '../support/scripts.ts';

const look = (json: string, most?: Partial<ShapeLimits>) =>
  atOnce(shapeOf(json, { depth: limits.jsonDepth, values: limits.jsonValues, ...most }));
const isTooDeep = (json: string) => look(json).isTooDeep;
/** What it counts, also where a short text needs no count. */
const count = (json: string) => look(json, { depth: 0 }).values;

test('the depth of JSON is counted as a parser would, and texts count for nothing', () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
  assert.equal(isTooDeep(nested(limits.jsonDepth)), false);
  assert.equal(isTooDeep(nested(limits.jsonDepth + 1)), true);
  assert.equal(isTooDeep(`{"a":${nested(limits.jsonDepth)}}`), true);
  assert.equal(isTooDeep(JSON.stringify({ a: '['.repeat(1_000), b: '\\"[{', '{{[': ']' })), false);
  assert.equal(isTooDeep(`[${'[1],'.repeat(1_000)}1]`), false);
  assert.equal(isTooDeep('"'.padEnd(1_000, '[')), false);
  assert.equal(isTooDeep(`{"a":"\\\\",${'"b":['.repeat(200)}`), true);
});

test('each text, number, word, object, list and name of a field counts as one', () => {
  const counts: [json: string, count: number][] = [
    ['', 0],
    [' \n', 0],
    ['{}', 1],
    ['[ ]', 1],
    ['-1.5e+3', 1],
    ['[1,2 ,\t3]', 4],
    ['[true,false,null]', 4],
    ['{"a":{"b":[]}}', 5],
    ['["a,b","{}[]:1","",""]', 5],
    [`["${'x'.repeat(100)}\\"","\\\\",1]`, 4],
    [`["${'\\\\'.repeat(100)}","${'\\"'.repeat(100)}","${'x'.repeat(99)}\\\\\\"1,2,3\\\\",1]`, 5],
    [`["${'ж'.repeat(100)}\\"","ж"]`, 3],
  ];
  for (const [json, expected] of counts) assert.equal(count(json), expected, json.slice(0, 50));
});

function counted(value: unknown): number {
  if (Array.isArray(value)) return value.reduce<number>((sum, one) => sum + counted(one), 1);
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce<number>((sum, one) => sum + 1 + counted(one), 1);
}

test('any JSON has as many names and values as what a parser makes of it', () => {
  const seed = Date.now();
  const draw = seeded(seed);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(draw() * from.length)]!;
  const texts = [
    '',
    'a',
    '"',
    '\\',
    '\\"',
    '[1,{',
    '\u0000',
    'ж'.repeat(40),
    'x'.repeat(33),
    '\\'.repeat(35),
  ];
  const value = (depth: number): unknown => {
    const kind = draw();
    if (depth > 5 || kind < 0.4) return pick([null, true, false, 0, -1.5e-7, 1e300, ...texts]);
    const items = Array.from({ length: Math.floor(draw() * 6) }, () => value(depth + 1));
    return kind < 0.7 ? items : Object.fromEntries(items.map((item, at) => [pick(texts) + at, item]));
  };
  for (let round = 0; round < 300; round += 1) {
    const made = value(0);
    const json = JSON.stringify(made, null, pick(['', ' ', '\t\n']));
    assert.equal(count(json), counted(made), `seed ${seed}: ${json}`);
  }
});

test('what has one more than may be is said to have too many, and is not looked at further', () => {
  const list = (values: number) =>
    `[${Array<string>(values - 1)
      .fill('{}')
      .join(',')}]`;
  assert.equal(look(list(limits.jsonValues)).hasTooMany, false);
  assert.equal(look(list(limits.jsonValues + 1)).hasTooMany, true);
  assert.equal(look('[['.repeat(limits.jsonValues)).hasTooMany, true);
  const { values } = look(`[${'1,'.repeat(1_000)}`, { values: 10 });
  assert.equal(values, 11);
});

test('the look gives way so often that it holds nobody up, and goes on amid texts and numbers', () => {
  const unit = `"${'a\\"'.repeat(11)}",123456789,{"b":true},`;
  const times = 20_000;
  const json = `[${unit.repeat(times)}null]`;
  const work = shapeOf(json, { depth: 10, values: 1e9 });
  let turns = 1;
  let made = work.next();
  for (; !made.done; made = work.next()) turns += 1;
  assert.ok(turns >= Math.floor(json.length / (128 * 1024)), `${turns} turns`);
  assert.equal(made.value.values, 5 * times + 2);
});

test('a value is large by its names and values, its texts and its bytes, and is looked at no further than that needs', () => {
  const large = [
    Array.from({ length: 2_000 }, () => ({})),
    [{ a: { b: Array.from({ length: 700 }, () => [1, null]) } }],
    'x'.repeat(200_000),
    { a: Buffer.alloc(1_000_000) },
  ];
  for (const value of large) assert.equal(isLargeValue(value), true);
  for (const value of [
    undefined,
    null,
    1,
    {},
    [undefined, null],
    { a: Array(900).fill('ab') },
    'x'.repeat(9_000),
  ])
    assert.equal(isLargeValue(value), false);
});
