import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConversationEvent, EventBody } from '../../src/domain/events.ts';
import { newId } from '../../src/domain/ids.ts';
import type { StreamSink } from '../../src/edges/http/stream.ts';
import { chatFrames } from '../../src/edges/openai/chat-stream.ts';
import { responseFrames } from '../../src/edges/openai/response-stream.ts';
import { contentOf, messageOfTurns } from '../../src/edges/openai/transcript.ts';

const runId = newId();
const conversationId = newId();
const messageId = newId();
const usage = { inputTokens: 3, outputTokens: 2, cost: '0.000001' };

let seq = 0;
const event = (body: EventBody): ConversationEvent => ({
  ...body,
  conversationId,
  runId,
  seq: ++seq,
  at: new Date(),
});
const delta = (text: string) => event({ type: 'message.delta', data: { runId, messageId, text } });
const retrying = (discardedMessageId: string | null) =>
  event({ type: 'run.retrying', data: { runId, attempt: 2, reason: 'lost', discardedMessageId } });
const completed = () => event({ type: 'run.completed', data: { runId, messageId, reply: 'task', usage } });

function recorder(): { sink: StreamSink; text: () => string; ended: () => boolean } {
  let text = '';
  let ended = false;
  const sink = {
    raw: (piece: string) => void (text += piece),
    end: () => void (ended = true),
  } as StreamSink;
  return { sink, text: () => text, ended: () => ended };
}

const chat = () =>
  chatFrames({ id: 'chatcmpl-1', model: 'agent', includeUsage: false, metadata: { run_id: runId } });
const response = (after?: number) =>
  responseFrames(
    {
      runId,
      conversationId,
      createdAt: new Date(),
      status: 'queued',
      text: null,
      error: null,
      usage: null,
    },
    { model: 'agent', instructions: null, previous_response_id: null, metadata: {}, background: false },
    after,
  );

test('text that was streamed and is void ends the stream with an error, since it cannot be taken back', async () => {
  for (const [frames, marker] of [
    [chat(), '"code":"run_retried"'],
    [response(), '"type":"error","code":"run_retried"'],
  ] as const) {
    const { sink, ended } = recorder();
    frames.begin(sink);
    frames.frame(delta('half'));
    assert.ok(frames.frame(retrying(messageId)).includes(marker));
    await Promise.resolve();
    assert.equal(ended(), true);
    assert.equal(frames.frame(delta('whole')) + frames.frame(completed()), '', 'nothing follows');
  }
});

test('a run that is begun anew before it said anything goes on in the same stream', () => {
  for (const frames of [chat(), response()]) {
    frames.begin(recorder().sink);
    assert.equal(frames.frame(retrying(messageId)) + frames.frame(retrying(null)), '');
    assert.match(frames.frame(delta('whole')), /whole/);
  }
});

test('an answer whose deltas are no longer kept is told whole', () => {
  const whole = event({
    type: 'message.created',
    data: {
      id: messageId,
      agentId: newId(),
      conversationId,
      runId,
      role: 'assistant',
      content: 'all of it',
      createdAt: '',
    },
  });
  for (const frames of [chat(), response()]) {
    frames.begin(recorder().sink);
    assert.match(frames.frame(whole), /"(content|delta)":"all of it"/);
    assert.equal(frames.frame(whole), '', 'and once');
    assert.match(frames.frame(completed()), /"finish_reason":"stop"|response\.completed/);
  }
});

test('a stream that is taken up again leaves out what the client has', () => {
  const all = response();
  const { sink, text } = recorder();
  all.begin(sink);
  const events = [delta('a'), delta('b'), completed()];
  const told = text() + events.map((one) => all.frame(one)).join('');
  for (const after of [-1, 0, 3, 5]) {
    const rest = response(after);
    const again = recorder();
    rest.begin(again.sink);
    const frames = (again.text() + events.map((one) => rest.frame(one)).join('')).match(/event: /g) ?? [];
    assert.equal(frames.length, told.match(/event: /g)!.length - after - 1);
  }
});

test('images, files and sounds of the message that is to be answered go along with it', () => {
  const bytes = Buffer.from('content').toString('base64');
  const turn = (content: unknown) => ({ role: 'user' as const, ...contentOf(content, 'messages.0.content') });
  const earlier = turn([{ type: 'image_url', image_url: { url: `data:image/gif;base64,${bytes}` } }]);
  const asked = turn([
    { type: 'text', text: 'What is ' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${bytes}` } },
    { type: 'input_image', image_url: 'https://example.com/a.png' },
    { type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${bytes}` } },
    { type: 'input_audio', input_audio: { data: bytes, format: 'wav' } },
    { type: 'input_text', text: 'this?' },
  ]);
  const answer = { role: 'assistant' as const, text: 'A picture.', parts: [] };
  const { content, parts } = messageOfTurns([earlier, answer, asked], 'messages');
  assert.match(content, /\[Message to answer\]\nWhat is this\?$/);
  assert.deepEqual(parts, [
    { kind: 'file', name: null, mediaType: 'image/png', bytes },
    { kind: 'link', name: null, mediaType: null, url: 'https://example.com/a.png' },
    { kind: 'file', name: 'a.pdf', mediaType: 'application/pdf', bytes },
    { kind: 'file', name: null, mediaType: 'audio/wav', bytes },
  ]);
  for (const wrong of [null, 7, { type: 'file', file: { file_id: 'f' } }, { type: 'image_url' }])
    assert.throws(() => contentOf([wrong], 'messages.0.content'), /messages\.0\.content\.0: must be a text/);
});

test('a run that waits for an answer says so in its stream, what it asks and where to answer, and then goes on', () => {
  const requestId = newId();
  const options = [{ optionId: 'yes', name: 'Allow', kind: 'allow_once' }];
  const waiting = () => event({ type: 'run.awaiting_input', data: { runId, requestId } });
  const permission = () =>
    event({
      type: 'permission.requested',
      data: { runId, requestId, toolCallId: 'c', title: 'Remove all', options },
    });
  const input = () =>
    event({
      type: 'input.requested',
      data: { runId, requestId, message: 'Remove all', form: {}, purpose: 'input' },
    });
  for (const requested of [permission, input]) {
    const inChat = chat();
    inChat.begin(recorder().sink);
    assert.equal(inChat.frame(requested()), '', 'a policy may answer it');
    const chunk = JSON.parse(inChat.frame(waiting()).slice('data: '.length));
    const { delta: told, finish_reason: finish } = chunk.choices[0];
    assert.match(told.reasoning_content, /Remove all/);
    assert.ok(told.reasoning_content.includes(`/v1/runs/${runId}/respond`));
    assert.deepEqual([told.content, finish], [undefined, null], 'it is no part of the answer, nor its end');
    assert.match(inChat.frame(delta('done')), /"content":"done"/);

    const inResponse = response();
    inResponse.begin(recorder().sink);
    inResponse.frame(requested());
    const [name, data] = inResponse.frame(waiting()).split('\n');
    assert.equal(name, 'event: response.in_progress');
    const { response: state, sequence_number: number } = JSON.parse(data!.slice('data: '.length));
    assert.deepEqual([state.status, state.awaiting_input.request_id, number], ['in_progress', requestId, 2]);
    assert.match(state.awaiting_input.message, /Remove all/);
    assert.match(inResponse.frame(delta('done')), /"delta":"done"/);
  }
});

test('artifacts are left out of streams, which hold the answer', () => {
  const made = event({
    type: 'artifact.updated',
    data: {
      runId,
      artifactId: 'a',
      name: 'a.txt',
      description: null,
      append: false,
      lastChunk: true,
      parts: [{ kind: 'text', text: 'beside the answer' }],
    },
  });
  for (const frames of [chat(), response()]) {
    frames.begin(recorder().sink);
    assert.equal(frames.frame(made), '');
    assert.doesNotMatch(frames.frame(completed()), /beside the answer/);
  }
});

test('an agent that refuses ends the stream in order', () => {
  const frames = chat();
  frames.begin(recorder().sink);
  const error = { code: 'refused' as const, error: 'No.' };
  const end = frames.frame(event({ type: 'run.failed', data: { runId, error, usage } }));
  assert.match(end, /"finish_reason":"content_filter"/);
  assert.match(end, /data: \[DONE\]\n\n$/);
});
