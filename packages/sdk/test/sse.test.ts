import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readSse, type SseEvent } from '../src/sse.ts';

async function read(chunks: (string | Uint8Array)[]): Promise<SseEvent[]> {
  const bytes = chunks.map((chunk) => (typeof chunk === 'string' ? new TextEncoder().encode(chunk) : chunk));
  return Array.fromAsync(readSse(ReadableStream.from(bytes) as ReadableStream<Uint8Array>));
}

const event = (data: string, more: Partial<SseEvent> = {}) => ({
  id: undefined,
  event: 'message',
  data,
  ...more,
});

test('An event has its id, its type and its data.', async () => {
  assert.deepEqual(await read(['id: 7\nevent: run.started\ndata: {"a":1}\n\n']), [
    event('{"a":1}', { id: '7', event: 'run.started' }),
  ]);
});

test('Where the bytes are cut makes no difference, not even inside a character or a line end.', async () => {
  for (const end of ['\n', '\r\n', '\r']) {
    const text = [`id: 1`, `data: häh 🙂`, ``, `: comment`, `data:second`, ``, ``].join(end);
    const bytes = new TextEncoder().encode(text);
    const whole = await read([bytes]);
    assert.deepEqual(whole, [event('häh 🙂', { id: '1' }), event('second')], JSON.stringify(end));
    for (let at = 1; at < bytes.length; at += 1)
      assert.deepEqual(
        await read([bytes.slice(0, at), bytes.slice(at)]),
        whole,
        `${JSON.stringify(end)} at ${at}`,
      );
    assert.deepEqual(await read(Array.from(bytes, (byte) => Uint8Array.of(byte))), whole);
  }
});

test('Several data lines are joined by a line break, and one blank after the colon is taken away.', async () => {
  assert.deepEqual(await read(['data: a\ndata:  b\ndata\n\n']), [event('a\n b\n')]);
});

test('Comments, unknown fields and events without data are passed over.', async () => {
  assert.deepEqual(await read([':\n\nretry: 5\nfoo: bar\n\nid: 9\n\ndata: x\n\n']), [event('x')]);
});

test('An event that was cut off before its blank line is not given out.', async () => {
  assert.deepEqual(await read(['data: whole\n\ndata: half\n']), [event('whole')]);
});
