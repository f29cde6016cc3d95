import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createClient, type Event } from '../src/index.ts';
import { cut, fakeService, frame, json, stream } from './fake-service.ts';

const runId = 'r1';
const delta = (seq: number) => frame(seq, 'message.delta', { runId, messageId: 'm', text: `${seq} ` });
const completed = (seq: number) => frame(seq, 'run.completed', { runId });
const run = (status: string) => json(200, { run: { id: runId, status } });
const content = { 'content-location': `/v1/runs/${runId}/events` };

async function seqs(events: AsyncIterable<Event>): Promise<number[]> {
  const all: number[] = [];
  for await (const event of events) all.push(event.seq);
  return all;
}

test("A run's stream that breaks, or that a draining service ends, goes on where it was, and ends with the run.", async (t) => {
  const { url, seen } = await fakeService(t, [
    stream([delta(3), delta(4)], { cut: true }),
    run('running'),
    // What was seen already and comes again is not given out twice.
    stream([delta(4), delta(6)]),
    run('running'),
    stream([completed(9)]),
  ]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  assert.deepEqual(await seqs(client.runs.follow(runId)), [3, 4, 6, 9]);
  const cursors = seen
    .filter((one) => one.path.endsWith('/events'))
    .map((one) => one.headers['last-event-id']);
  assert.deepEqual(cursors, ['0', '4', '6']);
});

test('A run that was over before the cursor ends the stream instead of being asked for again and again.', async (t) => {
  const { url, seen } = await fakeService(t, [stream([]), run('completed'), stream([])]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  assert.deepEqual(await seqs(client.runs.follow(runId, { after: 9 })), []);
  assert.equal(seen.length, 3);
});

test('A run that is over is still read to its end when the last connection broke.', async (t) => {
  const { url } = await fakeService(t, [
    stream([delta(3)], { cut: true }),
    run('completed'),
    stream([], { cut: true }),
    run('completed'),
    stream([completed(4)]),
  ]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  assert.deepEqual(await seqs(client.runs.follow(runId)), [3, 4]);
});

test("A conversation's stream goes on until it is aborted, and then ends quietly.", async (t) => {
  const stop = new AbortController();
  const { url } = await fakeService(t, [
    stream([delta(1), completed(2)]),
    stream([delta(3)], { cut: true }),
    (response) => {
      stream([delta(4)], { cut: true })(response);
      stop.abort();
    },
  ]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  const all = await seqs(client.conversations.follow('c', { signal: stop.signal }));
  assert.deepEqual(all.slice(0, 3), [1, 2, 3]);
});

test('A refusal ends a stream with its error.', async (t) => {
  const { url } = await fakeService(t, [json(404, { error: 'Not found.', code: 'not_found' })]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  await assert.rejects(seqs(client.runs.follow(runId)), { status: 404, code: 'not_found' });
});

test('A caller that has seen enough leaves no connection open.', async (t) => {
  let isClosed: Promise<unknown> = Promise.resolve();
  const { url } = await fakeService(t, [
    (response) => {
      isClosed = new Promise((resolve) => response.once('close', resolve));
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(delta(1));
    },
  ]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  for await (const event of client.conversations.follow('c')) if (event.seq === 1) break;
  await isClosed;
});

test('A streamed send that is cut goes on with the stream of its run, even before the first event.', async (t) => {
  for (const first of [[], [delta(5)]]) {
    const { url, seen } = await fakeService(t, [
      stream(first, { cut: true, headers: content }),
      stream([delta(6), completed(7)]),
    ]);
    const client = createClient({ baseUrl: url, apiKey: 'k' });
    const all = await seqs(client.chat.stream({ agentId: 'a', content: 'x' }));
    assert.deepEqual(all, first.length === 0 ? [6, 7] : [5, 6, 7]);
    assert.deepEqual(
      seen.map((one) => `${one.method} ${one.path}`),
      ['POST /api/v1/chat/send', `GET /v1/runs/${runId}/events`],
    );
  }
});

test('A streamed send without an answer is sent again under the same key.', async (t) => {
  const { url, seen } = await fakeService(t, [cut, stream([completed(5)], { headers: content })]);
  const client = createClient({ baseUrl: url, apiKey: 'k' });
  assert.deepEqual(await seqs(client.chat.stream({ agentId: 'a', content: 'x' })), [5]);
  assert.equal(seen[0]!.headers['idempotency-key'], seen[1]!.headers['idempotency-key']);
  assert.equal(seen[0]!.headers.accept, 'text/event-stream');
});
