import assert from 'node:assert/strict';
import { test } from 'node:test';
import { atOnce } from '../../src/domain/slices.ts';
import { badJsonValue, badValue, isDeepValue, isStorable, type BadValue } from '../../src/edges/http/text.ts';
import { seeded } from '../support/scripts.ts';

/** The plain way: the names of an object first, then its values from the last to the first. */
function reference(value: unknown, path = ''): BadValue | null {
  const bad = (message: string) => ({ path: path || 'body', message });
  if (typeof value === 'string' && !isStorable(value))
    return bad('must not contain U+0000 or a lone surrogate');
  if (typeof value === 'number' && !Number.isFinite(value))
    return bad('must be a number that a double can hold, from -1.8e308 to 1.8e308');
  if (typeof value !== 'object' || value === null) return null;
  const entries = Object.entries(value);
  if (entries.some(([name]) => !isStorable(name))) return bad('must not contain U+0000 or a lone surrogate');
  for (const [name, inner] of entries.toReversed()) {
    const found = reference(inner, path ? `${path}.${name}` : name);
    if (found !== null) return found;
  }
  return null;
}

test('what is found in a value, and its path, are the same as by the plain way', () => {
  const seed = Date.now();
  const draw = seeded(seed);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(draw() * from.length)]!;
  let found = 0;
  for (let round = 0; round < 2_000; round += 1) {
    const bad = draw() < 0.5 ? [] : ['\u0000', '\ud800', Infinity];
    const value = (depth: number): unknown => {
      const kind = draw();
      if (depth > 4 || kind < 0.4) return pick([null, true, 0, 'a', '', '😀', 'b', 1, 'c', 2, ...bad]);
      const items = Array.from({ length: Math.floor(draw() * 5) }, () => value(depth + 1));
      if (kind < 0.7) return items;
      const name = () => pick(['', 'a', 'b.c', '__proto__', '0', 'd', 'e', ...bad.slice(0, 2).map(String)]);
      return Object.fromEntries(items.map((item) => [name(), item]));
    };
    const made = value(0);
    const expected = reference(made);
    if (expected !== null) found += 1;
    assert.deepEqual(badValue(made), expected, `seed ${seed}: ${JSON.stringify(made)}`);
  }
  assert.ok(found > 100, `seed ${seed}: ${found} were bad`);
});

test('a value that is nested deeper than the call stack is looked at to its end', () => {
  const deep = (inner: unknown) => {
    let value = inner;
    for (let level = 0; level < 200_000; level += 1) value = [value];
    return value;
  };
  assert.equal(badValue(deep('good')), null);
  assert.ok(badValue(deep('\u0000'))!.path.startsWith('0.0.0.'));
  assert.equal(isDeepValue(deep(1)), true);
  assert.equal(isDeepValue([[1], { a: [] }], 3), false);
  assert.equal(isDeepValue([[1], { a: [] }], 2), true);
});

test('what makes a text suspicious is found wherever its pieces are cut, and the look gives way between them', () => {
  const step = 128 * 1024;
  for (const sign of ['\\u0000', '1e999', '9'.repeat(400)]) {
    for (const at of [step - 300, step - 3, step - 1, step, 2 * step - 1]) {
      const json = `["${' '.repeat(at - 2)}${sign}"]`;
      assert.deepEqual(atOnce(badJsonValue(json, ['\u0000'])), reference(['\u0000']), `${sign} at ${at}`);
    }
  }
  const work = badJsonValue(`"${'a'.repeat(10 * step)}"`, 'a');
  let turns = 1;
  for (let made = work.next(); !made.done; made = work.next()) turns += 1;
  assert.equal(turns, 11);
  assert.equal(badJsonValue('{"a":1}', {}).next().done, true);
});
