import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countValues } from '../../src/domain/json-values.ts';
import { random } from '../support/kill-rounds.ts';

/** As the docstring says it, of what was read. */
function counted(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  const parts = Object.values(value);
  const names = Array.isArray(value) ? 0 : parts.length;
  return parts.reduce<number>((sum, part) => sum + counted(part), 1 + names + (parts.length === 0 ? 1 : 0));
}

const texts = ['', 'a', '"', '\\', '\\"', '"\\', ',:[{}]', '\\\\"', 'a"b"c', '\n\u0000', '\ud83d\ude00'];

test('names and values are counted as they are read, whatever is in the texts', () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  process.stdout.write(`seed ${seed}\n`);
  const next = random(seed);
  const pick = (below: number) => Math.floor(next() * below);
  const make = (depth: number): unknown => {
    const kind = pick(depth > 4 ? 4 : 6);
    if (kind === 0) return texts[pick(texts.length)];
    if (kind < 4) return [1.5e-7, null, true][kind - 1];
    const parts = Array.from({ length: pick(5) }, () => make(depth + 1));
    if (kind === 4) return parts;
    return Object.fromEntries(parts.map((part, at) => [`${texts[pick(texts.length)]}${at}x`, part]));
  };
  for (let round = 0; round < 2000; round += 1) {
    const value = make(0);
    const json = JSON.stringify(value, null, round % 3);
    assert.equal(countValues(json, Infinity), counted(value), json);
  }
});

test('counting ends beyond the limit, and in a text without an end', () => {
  assert.equal(countValues('[1,2,3]', 4), 4);
  assert.equal(countValues('[1,2,3,4,5,6]', 4), 5);
  assert.equal(countValues('['.repeat(1000), 4), 5);
  for (const open of ['["a', '["a\\', '["a\\"', '["']) assert.equal(countValues(open, 10), 2, open);
});
