import assert from 'node:assert/strict';
import { test } from 'node:test';
import { settled } from '../../src/edges/mcp/settled.ts';

type Controller = ReadableStreamDefaultController<Uint8Array>;

/** A response whose body the test writes. */
function open(): { response: Response; body: Controller; cancelled: () => unknown } {
  let body: Controller;
  let cancelled: unknown;
  const stream = new ReadableStream<Uint8Array>({
    start: (controller) => void (body = controller),
    cancel: (reason) => void (cancelled = reason),
  });
  const response = new Response(stream, { status: 203, headers: { 'content-type': 'text/event-stream' } });
  return { response, body: body!, cancelled: () => cancelled };
}
const bytes = (text: string) => new TextEncoder().encode(text);
const given = (response: Response) => [response.status, response.headers.get('content-type')];

test('a response that ends with its first bytes is whole when it begins', async () => {
  const { response, body } = open();
  const waiting = settled(response);
  body.enqueue(bytes('all of it'));
  body.close();
  const whole = await waiting;
  // Its body is not a stream of somebody who could still write to it.
  assert.ok(response.body!.locked);
  assert.deepEqual(given(whole), [203, 'text/event-stream']);
  assert.equal(await whole.text(), 'all of it');
});

test('what goes on after the first bytes comes piece by piece, in order and to its end', async () => {
  const { response, body } = open();
  const waiting = settled(response);
  body.enqueue(bytes('one '));
  const begun = await waiting;
  assert.deepEqual(given(begun), [203, 'text/event-stream']);
  const reader = begun.body!.getReader();
  const decoder = new TextDecoder();
  assert.equal(decoder.decode((await reader.read()).value), 'one ');
  body.enqueue(bytes('two'));
  assert.equal(decoder.decode((await reader.read()).value), 'two');
  body.close();
  assert.equal((await reader.read()).done, true);
});

test('a response without a body, one with an empty one, and a reader that leaves', async () => {
  const none = new Response(null, { status: 202 });
  assert.equal(await settled(none), none);
  const empty = open();
  empty.body.close();
  assert.equal(await (await settled(empty.response)).text(), '');
  const left = open();
  left.body.enqueue(bytes('one'));
  await (await settled(left.response)).body!.cancel('gone');
  assert.equal(left.cancelled(), 'gone');
});
