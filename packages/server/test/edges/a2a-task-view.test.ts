import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Role, TaskState } from '@a2a-js/sdk';
import type { EventBody } from '../../src/domain/events.ts';
import { canonicalJson } from '../../src/edges/a2a/canonical-json.ts';
import { taskFilter } from '../../src/edges/a2a/list-filter.ts';
import { TaskView } from '../../src/edges/a2a/task-view.ts';

const runId = 'run';
const at = new Date('2026-11-28T09:00:00.000Z');
const usage = { inputTokens: 1, outputTokens: 1, cost: '0.000000' };

function fold(view: TaskView, ...bodies: EventBody[]) {
  return bodies.flatMap((body) =>
    view.apply({ ...body, conversationId: 'conversation', runId, seq: view.seq + 1, at }),
  );
}

const created = (role: 'user' | 'assistant', content: string): EventBody => ({
  type: 'message.created',
  data: { id: role, agentId: 'a', conversationId: 'c', runId, role, content, createdAt: at.toISOString() },
});
const delta = (messageId: string, text: string): EventBody => ({
  type: 'message.delta',
  data: { runId, messageId, text },
});
const queued: EventBody = { type: 'run.queued', data: { runId, messageId: 'user' } };
const started: EventBody = { type: 'run.started', data: { runId, attempt: 1, deploymentId: null } };
const completed: EventBody = {
  type: 'run.completed',
  data: { runId, messageId: 'assistant', reply: 'task', usage },
};

test('a task begins with itself and holds the text of its answer as one artifact, however it came', () => {
  const view = new TaskView(runId, 'context', '1.0');
  const told = fold(view, created('user', 'hi'), queued, started, delta('m', 'one '), delta('m', 'two'));
  assert.deepEqual(
    told.map(({ payload }) => payload!.$case),
    ['task', 'statusUpdate', 'artifactUpdate', 'artifactUpdate'],
  );
  const end = fold(view, created('assistant', 'one two'), completed);
  assert.deepEqual(
    end.map(({ payload }) => payload!.$case),
    ['statusUpdate'],
    'what was streamed is not told again',
  );
  const { artifacts, status, history } = view.task();
  assert.deepEqual(
    artifacts.map(({ parts }) => parts.map(({ content }) => content!.value)),
    [['one two']],
  );
  assert.equal(status?.state, TaskState.TASK_STATE_COMPLETED);
  assert.deepEqual(
    status.message?.parts.map(({ content }) => content!.value),
    ['one two'],
  );
  assert.equal(status?.timestamp, '2026-11-28T09:00:00.000Z');
  assert.equal(history.length, 1);
  assert.deepEqual(view.task({ historyLength: 0 }).history, []);
});

test('an artifact that the agent calls as A2A calls its answer is lost to neither, streamed or read', () => {
  const made = (artifactId: string, value: string, append = false): EventBody => ({
    type: 'artifact.updated',
    data: {
      runId,
      artifactId,
      name: artifactId,
      description: null,
      append,
      lastChunk: true,
      parts: [{ kind: 'data', data: value, mediaType: 'application/json' }],
    },
  });
  const view = new TaskView(runId, 'context', '1.0');
  const told = fold(
    view,
    created('user', 'hi'),
    queued,
    started,
    delta('m', 'one '),
    made('answer', 'a'),
    delta('m', 'two'),
    made('answer_', 'b'),
    made('answer', 'c', true),
    created('assistant', 'one two'),
    completed,
  );
  const expected = [
    ['answer', ['one two']],
    ['answer_', ['a', 'c']],
    ['answer__', ['b']],
  ];
  const valuesOf = (parts: { content?: { value: unknown } | undefined }[]) =>
    parts.map(({ content }) => content!.value);
  assert.deepEqual(
    view.task().artifacts.map(({ artifactId, parts }) => [artifactId, valuesOf(parts)]),
    expected,
  );
  // As a client puts the pieces together.
  const joined = new Map<string, unknown[]>();
  for (const { payload } of told) {
    if (payload?.$case !== 'artifactUpdate') continue;
    const { artifact, append } = payload.value;
    const { artifactId, parts } = artifact!;
    joined.set(artifactId, [...((append && joined.get(artifactId)) || []), ...valuesOf(parts)]);
  }
  assert.deepEqual(
    [...joined].map(([id, values]) => [id, id === 'answer' ? [values.join('')] : values]),
    expected,
  );
});

test('a second attempt takes the place of what the first had streamed and made', () => {
  const view = new TaskView(runId, 'context', '1.0');
  const made: EventBody = {
    type: 'artifact.updated',
    data: {
      runId,
      artifactId: 'file',
      name: null,
      description: null,
      append: false,
      lastChunk: true,
      parts: [{ kind: 'text', text: 'x' }],
    },
  };
  fold(view, created('user', 'hi'), queued, started, delta('m1', 'lost'), made);
  const retrying: EventBody = {
    type: 'run.retrying',
    data: { runId, attempt: 2, reason: 'lost', discardedMessageId: 'm1' },
  };
  const [, again] = fold(view, retrying, delta('m2', 'kept'));
  assert.ok(again?.payload?.$case === 'artifactUpdate');
  assert.equal(again.payload.value.append, false);
  assert.deepEqual(
    view.task().artifacts.map(({ artifactId, parts }) => [artifactId, parts[0]!.content!.value]),
    [['answer', 'kept']],
  );
});

test('an answer whose pieces are not in the log any more is told whole; in 0.3 the status does not repeat it', () => {
  const view = new TaskView(runId, 'context', '0.3');
  const told = fold(view, created('user', 'hi'), queued, started, created('assistant', 'whole'), completed);
  const update = told.find(({ payload }) => payload?.$case === 'artifactUpdate');
  assert.equal(update?.payload?.$case === 'artifactUpdate' && update.payload.value.lastChunk, true);
  assert.equal(view.task().status?.message, undefined);
});

const asked = (purpose: 'input' | 'authorization', message: string): EventBody[] => [
  { type: 'input.requested', data: { runId, requestId: purpose, message, form: {}, purpose } },
  { type: 'run.awaiting_input', data: { runId, requestId: purpose } },
];

test('what asks for more waits for a message; what asks to be allowed something is AUTH_REQUIRED, says what, and goes on being told', () => {
  const view = new TaskView(runId, 'context', '1.0');
  fold(view, created('user', 'hi'), queued, started, ...asked('input', 'What colour?'));
  assert.equal(view.state, TaskState.TASK_STATE_INPUT_REQUIRED);
  assert.deepEqual([view.isInterrupted, view.isAsking], [true, true]);
  const answered: EventBody[] = [
    {
      type: 'input.resolved',
      data: {
        runId,
        requestId: 'input',
        action: 'accept',
        content: { colour: 'blue' },
        clientMessageId: 'm-2',
        by: 'caller',
      },
    },
    { type: 'run.resumed', data: { runId, requestId: 'input' } },
  ];
  const [told] = fold(view, ...answered, ...asked('authorization', 'Give me access.')).slice(-1);
  assert.ok(told?.payload?.$case === 'statusUpdate');
  const { status } = told.payload.value;
  assert.equal(status?.state, TaskState.TASK_STATE_AUTH_REQUIRED);
  assert.deepEqual(status.message?.parts[0]?.content, { $case: 'text', value: 'Give me access.' });
  assert.deepEqual([view.isInterrupted, view.isAsking, view.isTerminal], [true, false, false]);
  assert.deepEqual(
    view.task().history.map(({ messageId, role }) => [messageId, role]),
    [
      ['user', Role.ROLE_USER],
      ['input', Role.ROLE_AGENT],
      ['m-2', Role.ROLE_USER],
    ],
    'an answer that came as a message is in the history under its own id',
  );
});

test('a list of the tasks that wait tells the two kinds apart', () => {
  const of = (status: TaskState) =>
    taskFilter({ tenant: '', contextId: '', pageToken: '', status, statusTimestampAfter: undefined });
  const waiting = { statuses: ['awaiting_input'], refused: null, since: null };
  assert.deepEqual(of(TaskState.TASK_STATE_INPUT_REQUIRED), { ...waiting, authorization: false });
  assert.deepEqual(of(TaskState.TASK_STATE_AUTH_REQUIRED), { ...waiting, authorization: true });
});

test('canonical JSON is that of RFC 8785', () => {
  const value = { b: [1e21, 0.000001, -0, 'é\n'], a: { '\u20ac': null, $: true }, gone: undefined };
  assert.equal(canonicalJson(value), '{"a":{"$":true,"€":null},"b":[1e+21,0.000001,0,"é\\n"]}');
});
