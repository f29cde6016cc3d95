import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AnsweredQuestions } from '../../src/harness/answered-questions.ts';
import type { Channel } from '../../src/harness/channel.ts';

function noted() {
  const notes = new Map<string, unknown>();
  const channel = {
    charge: () => undefined,
    note: (key: string, value: unknown) => void notes.set(key, structuredClone(value)),
  } as Partial<Channel> as Channel;
  return { notes, answered: new AnsweredQuestions(channel), next: new AnsweredQuestions(channel) };
}

test('The note of answered questions has 2,000 characters at most, those answered last, and none that is acknowledged.', () => {
  const { notes, answered, next } = noted();
  const chars = () => JSON.stringify(notes.get('answered')).length;
  for (let n = 1; n <= 1000; n += 1) {
    answered.add(n % 2 === 0 ? n : '"'.repeat(200), n * 1000, 0);
    assert.ok(chars() <= 2000);
  }
  assert.ok(chars() > 1500);
  next.restore(notes);
  assert.deepEqual(
    [next.has(1000, 1_000_000), next.has(1000, 1_000_001), next.has(2, 2000)],
    [true, false, false],
  );
  next.add(5, 1_002_000, 1_000_000);
  assert.deepEqual(notes.get('answered'), [[5, 1_002_000]]);
});

test('What else the note may hold, which comes from inside the sandbox, is passed over.', () => {
  const { next } = noted();
  for (const value of [null, 'x', {}, [null, 1, [], ['q'], ['q', '9'], ['q', 1.5], [{}, 9]]]) {
    next.restore(new Map([['answered', value]]));
    assert.equal(next.has('q', 0), false);
  }
  next.restore(new Map([['answered', [[], ['q', 9]]]]));
  assert.equal(next.has('q', 9), true);
});
