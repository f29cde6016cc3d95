import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SseReader } from '../src/sse.ts';

const stream = Buffer.from(
  ': comment\r\nevent: a\ndata: {"x":"ü🦀"}\n\ndata:second\ndata: line\n\nid: 5\n\ndata: \n\ndata: last',
);
const expected = ['{"x":"ü🦀"}', 'second\nline', '', 'last'];

test('events are the same wherever the stream is cut in two', () => {
  for (let cut = 0; cut <= stream.length; cut++) {
    const seen: string[] = [];
    const reader = new SseReader((data) => seen.push(data));
    reader.push(stream.subarray(0, cut));
    reader.push(stream.subarray(cut));
    reader.end();
    assert.deepEqual(seen, expected, `cut at ${cut}`);
  }
});

test('a line that never ends is refused', () => {
  const reader = new SseReader(() => undefined);
  const piece = Buffer.alloc(1024 * 1024, 'x');
  assert.throws(() => {
    for (let count = 0; count < 20; count++) reader.push(piece);
  }, /without an end/);
});
