import assert from 'node:assert/strict';
import { test } from 'node:test';
import { apply, emptyView, type Event } from '../src/index.ts';

function viewOf(events: [type: string, data: Record<string, unknown>][]) {
  const view = emptyView();
  for (const [index, [type, data]] of events.entries())
    apply(view, { seq: index + 1, type, at: `t${index + 1}`, data: { runId: 'r1', ...data } });
  return view;
}

const delta = (text: string, messageId = 'm2'): [string, object & Record<string, unknown>] => [
  'message.delta',
  { messageId, text },
];

test('Deltas grow a message that the whole message then completes, in its place.', () => {
  const growing = viewOf([
    ['message.created', { id: 'm1', role: 'user', content: 'hi' }],
    delta('a'),
    delta('b'),
  ]);
  assert.deepEqual(
    [...growing.messages.values()].map((message) => [message.role, message.content, message.complete]),
    [
      ['user', 'hi', true],
      ['assistant', 'ab', false],
    ],
  );
  apply(growing, {
    seq: 4,
    type: 'message.created',
    at: 't',
    data: { id: 'm2', runId: 'r1', role: 'assistant', content: 'ab' },
  });
  assert.deepEqual(growing.messages.get('m2'), {
    role: 'assistant',
    runId: 'r1',
    content: 'ab',
    complete: true,
  });
});

test('What an interrupted attempt streamed is taken away.', () => {
  const view = viewOf([
    delta('half', 'm2'),
    ['run.retrying', { attempt: 2, reason: 'x', discardedMessageId: 'm2' }],
    delta('whole', 'm3'),
  ]);
  assert.deepEqual([...view.messages.keys()], ['m3']);
  assert.equal(view.runs.get('r1'), 'queued');
});

test('A run has the status that its last event says.', () => {
  const types = ['run.queued', 'run.started', 'run.awaiting_input', 'run.resumed', 'run.completed'];
  const seen = types.map((_, index) =>
    viewOf(types.slice(0, index + 1).map((type) => [type, {}])).runs.get('r1'),
  );
  assert.deepEqual(seen, ['queued', 'running', 'awaiting_input', 'running', 'completed']);
});

test('Each call of a tool is a span of its own, also when its id comes again in another attempt or run.', () => {
  const call = { toolCallId: 'call_1', title: 'bash', kind: 'execute' };
  const view = viewOf([
    ['tool.started', { ...call, status: 'running', input: { command: 'a' } }],
    ['tool.finished', { ...call, status: 'completed', output: 'A' }],
    ['tool.started', { ...call, status: 'running', input: { command: 'b' } }],
    ['tool.updated', { ...call, status: 'running', output: 'B…' }],
    ['tool.started', { ...call, runId: 'r2', status: 'running', input: { command: 'c' } }],
  ]);
  assert.deepEqual(
    [...view.tools.values()].map((span) => [
      span.runId,
      span.input,
      span.output,
      span.startedAt,
      span.endedAt,
    ]),
    [
      ['r1', { command: 'a' }, 'A', 't1', 't2'],
      ['r1', { command: 'b' }, 'B…', 't3', null],
      ['r2', { command: 'c' }, undefined, 't5', null],
    ],
  );
});

test('An event that was taken in already, and one of a type that is not known, change nothing that is shown.', () => {
  const view = viewOf([delta('a')]);
  const again: Event = { seq: 1, type: 'message.delta', at: 't', data: { messageId: 'm2', text: 'a' } };
  apply(view, again);
  apply(view, { seq: 2, type: 'something.new', at: 't', data: {} });
  assert.equal(view.messages.get('m2')!.content, 'a');
  assert.equal(view.seq, 2);
});
