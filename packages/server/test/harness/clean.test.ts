import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cleanText } from '../../src/domain/clean-text.ts';
import { cleanMessage, deepClean, mayNeedCleaning } from '../../src/harness/clean.ts';
import { random } from '../support/kill-rounds.ts';

/** As it would be said with no thought of time and depth. */
function plainly(value: unknown): unknown {
  if (typeof value === 'string') return cleanText(value);
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(plainly);
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [cleanText(name), plainly(part)]));
}

const texts = [
  '',
  'plain',
  'nul\u0000',
  '\u0000',
  '\ufffd',
  '\ud83d',
  '\ude00x',
  '\ud83d\ude00',
  '__proto__',
  '7',
];

test('every text and name of a message is cleaned, at any depth, and nothing else changes', () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  process.stdout.write(`seed ${seed}\n`);
  const next = random(seed);
  const pick = (below: number) => Math.floor(next() * below);
  const make = (depth: number): unknown => {
    const kind = pick(depth > 5 ? 3 : 6);
    if (kind < 2) return texts[pick(texts.length)];
    if (kind === 2) return [0, null, true, -1.5][pick(4)];
    const parts = Array.from({ length: pick(5) }, () => make(depth + 1));
    return kind === 3 ? parts : Object.fromEntries(parts.map((part) => [texts[pick(texts.length)], part]));
  };
  for (let round = 0; round < 2000; round += 1) {
    const json = JSON.stringify(make(0));
    const wanted = JSON.stringify(plainly(JSON.parse(json)));
    assert.equal(JSON.stringify(deepClean(JSON.parse(json))), wanted, json);
    // What is not looked at has nothing that a look would change.
    if (!mayNeedCleaning(json)) assert.equal(json, wanted);
  }
});

test('what is clean is not copied', () => {
  const message = { a: [{ b: 'text' }, 1], c: { d: null } };
  const { a, c } = message;
  assert.equal(deepClean(message), message);
  assert.ok(message.a === a && message.c === c);
  assert.deepEqual(message, { a: [{ b: 'text' }, 1], c: { d: null } });
});

test('escapes of ordinary characters need no look', () => {
  assert.equal(mayNeedCleaning('"\\u0041\\u001b\\u00e9\\ue000"'), false);
  for (const escape of ['\\u0000', '\\ud83d', '\\uDFFF', '\\uD800'])
    assert.ok(mayNeedCleaning(`"${escape}"`), escape);
});

test('a message that is nested deeper than the call stack is cleaned to its end', () => {
  for (const [open, close] of [
    ['[', ']'],
    ['{"a":', '}'],
  ] as const) {
    let value = deepClean(JSON.parse(`${open.repeat(100_000)}"\\u0000"${close.repeat(100_000)}`));
    while (typeof value === 'object' && value !== null) value = Object.values(value)[0];
    assert.equal(value, '\ufffd');
  }
});

test('a piece of an answer keeps half of a pair, and all else in its message is cleaned', () => {
  const message = (name: string, text: string, other: string) => ({
    params: {
      update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text, [name]: other } },
    },
  });
  assert.deepEqual(
    cleanMessage(message('x\u0000', '\ud83d', '\ud83d')),
    message('x\ufffd', '\ud83d', '\ufffd'),
  );
});
