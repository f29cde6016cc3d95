import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { conformanceFiles } from '../support/conformance-agent.ts';
import { checkLog, logOf, workshop, type LoggedEvent, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';

let service: Service;
let shop: Workshop;
let agentId: string;
before(async () => {
  service = await startService({ env: { BERTH_DETACH: 'always' } });
  shop = await workshop(service);
  agentId = (await shop.agent(await conformanceFiles())).id;
});
after(async () => {
  await shop?.close();
  await service?.end();
});

// oxlint-disable-next-line no-explicit-any -- answers of the API, which openapi.test.ts checks
type Body = any;

async function send(fields: Record<string, unknown>, prefer = 'wait=60'): Promise<Body> {
  const body = { agentId, content: 'go', ...fields };
  const { status, text, body: answer } = await service.api('POST', '/api/v1/chat/send', body, { prefer });
  assert.ok(status === 200 || status === 202, text);
  return answer;
}

const word = (clientMessageId: string) => send({ clientMessageId: `${clientMessageId}-abc123` });
const runOf = async (runId: string): Promise<Body> =>
  (await service.api('GET', `/v1/runs/${runId}`)).body.run;
const artifactsOf = async (runId: string): Promise<Body> =>
  (await service.api('GET', `/v1/runs/${runId}/artifacts`)).body.artifacts;
const respond = (runId: string, body: Record<string, unknown>) =>
  service.api('POST', `/v1/runs/${runId}/respond`, body);

/** The question for which a run waits. */
async function asked(runId: string): Promise<Body> {
  await until('it waits', async () => (await runOf(runId)).status === 'awaiting_input');
  return (await logOf(service, { runId })).findLast((event) => event.type === 'input.requested')!.data;
}

const file = { kind: 'file', name: 'output.txt', mediaType: 'text/plain', bytes: 'dGNr' };
const link = {
  kind: 'link',
  name: 'output.txt',
  mediaType: 'text/plain',
  url: 'https://example.com/output.txt',
};
const text = (value: string) => ({ kind: 'text', text: value });
const made: [string, object[]][] = [
  ['tck-artifact-text', [text('Generated text content')]],
  ['tck-artifact-file', [file]],
  ['tck-artifact-file-url', [link]],
  ['tck-artifact-data', [{ kind: 'data', data: { key: 'value', count: 42 }, mediaType: 'application/json' }]],
  ['tck-stream-001', [text('Stream hello from TCK')]],
  ['tck-stream-003', [text('Stream task lifecycle')]],
  ['tck-stream-ordering-001', [text('Ordered output')]],
  ['tck-stream-artifact-text', [text('Streamed text content')]],
  ['tck-stream-artifact-file', [file]],
  ['tck-stream-artifact-chunked', [text('chunk-1 '), text('chunk-2')]],
];

test('Each artifact that the test kits ask for is in the answer, in the log and with the run.', async () => {
  for (const [name, parts] of made) {
    const sent = await word(name);
    assert.equal(sent.status, 'completed', name);
    assert.equal(sent.artifacts.length, 1, name);
    assert.deepEqual(sent.artifacts[0].parts, parts, name);
    assert.deepEqual(sent.message.artifactIds, [sent.artifacts[0].artifactId], name);
    assert.deepEqual(await artifactsOf(sent.runId), sent.artifacts, name);
    const log = await logOf(service, { conversationId: sent.conversationId });
    checkLog(log);
    const updates = log.filter((event) => event.type === 'artifact.updated');
    assert.deepEqual(
      updates.flatMap((event) => event.data.parts),
      parts,
      name,
    );
    assert.equal(updates.at(-1)!.data.lastChunk, true, name);
  }
});

test('A word at the beginning of the text counts too, and the longest one: as an answer, a plain message, nothing or an error.', async () => {
  const done = await send({ content: 'tck-complete-task please' });
  assert.equal(done.message.content, 'Hello from TCK');
  assert.equal(done.artifacts, undefined);
  const ends = async (sent: Body): Promise<LoggedEvent> =>
    (await logOf(service, { runId: sent.runId })).findLast((event) => event.type.startsWith('run.'))!;
  assert.equal((await ends(done)).data.reply, 'task');
  const plain = await word('tck-message-response');
  assert.equal(plain.message.content, 'Direct message response');
  assert.equal((await ends(plain)).data.reply, 'message');
  assert.equal((await word('tck-stream-002')).message.content, '');
  const refused = await word('tck-reject-task');
  assert.equal(refused.status, 'failed');
  assert.deepEqual(refused.error, { code: 'refused', error: 'rejected' });
  assert.equal((await word('tck-task-failure')).error.code, 'harness_error');
});

test('A message shows its files, data and links, its own id and metadata; the agent gets them, and their limits are told.', async () => {
  const parts = [
    { kind: 'file', name: 'hello.txt', mediaType: 'text/plain', bytes: 'aGVsbG8=' },
    { kind: 'data', data: { a: [1, null, 'ü'] }, mediaType: 'application/json' },
    { kind: 'link', name: null, mediaType: null, url: 'https://example.com/x' },
    { kind: 'file', name: 'dot.png', mediaType: 'image/png', bytes: 'iVBORw0K' },
  ];
  const extras = { parts, clientMessageId: 'mine-1', metadata: { ticket: 7 } };
  const sent = await send({ content: '', ...extras });
  assert.equal(
    sent.message.content,
    'You said: [resource hello.txt text/plain 5 bytes]\n[resource data.json application/json 19 bytes]\n' +
      '[link https://example.com/x https://example.com/x]\n[image dot.png image/png 6 bytes]',
  );
  const path = `/v1/conversations/${sent.conversationId}`;
  const { messages } = (await service.api('GET', `${path}/messages`)).body;
  const { id: _id, createdAt: _at, ...shown } = messages[1];
  const { conversationId, runId } = sent;
  assert.deepEqual(shown, { agentId, conversationId, runId, role: 'user', content: '', ...extras });
  const [created] = await logOf(service, { conversationId });
  assert.deepEqual(created!.data, messages[1]);
  const title = (await service.api('GET', path)).body.conversation.title;
  assert.equal(title, '[file hello.txt, text/plain, 5 bytes]');

  const refusals: [Record<string, unknown>, string][] = [
    [{ content: '' }, 'content'],
    [{ parts: Array.from({ length: 21 }, () => parts[2]) }, 'parts'],
    [{ parts: [{ ...parts[0], bytes: 'aGVsbG8' }] }, 'parts.0.bytes'],
    [{ parts: [{ ...parts[0], mediaType: 'text' }] }, 'parts.0.mediaType'],
    [{ parts: [{ ...parts[2], url: '/relative' }] }, 'parts.0.url'],
    [{ parts: [{ kind: 'link', name: 'n'.repeat(256), url: 'https://x.y' }] }, 'parts.0.name'],
    [{ parts: [{ kind: 'text', text: 'x' }] }, 'parts.0.kind'],
    [{ clientMessageId: 'x'.repeat(256) }, 'clientMessageId'],
    [{ metadata: { much: 'x'.repeat(16 * 1024) } }, 'metadata'],
    [{ metadata: [] }, 'metadata'],
  ];
  for (const [fields, where] of refusals) {
    const body = { agentId, content: 'x', ...fields };
    const { status, body: answer } = await service.api('POST', '/api/v1/chat/send', body);
    assert.equal(status, 400, where);
    assert.equal(answer.details[0].path, where);
  }
});

test('A run waits for what its agent asks, takes only what was asked for, and tells who said what.', async () => {
  const sent = await send({ clientMessageId: 'tck-input-required-1' }, 'respond-async');
  const { requestId, message, form, purpose } = await asked(sent.runId);
  assert.deepEqual([message, purpose], ['More is needed to go on.', 'input']);
  assert.deepEqual(form.required, ['text']);
  for (const wrong of [
    {},
    { optionId: 'yes' },
    { content: {} },
    { content: { text: 7 } },
    { content: { text: 'x', more: 'y' } },
  ]) {
    const refused = await respond(sent.runId, { requestId, ...wrong });
    assert.equal(refused.status, 400, JSON.stringify(wrong));
  }
  assert.equal((await respond(sent.runId, { requestId, content: 'blue' })).status, 200);
  await until('it ends', async () => (await runOf(sent.runId)).status === 'completed');
  assert.equal((await respond(sent.runId, { requestId, content: 'red' })).status, 409);
  const log = await logOf(service, { conversationId: sent.conversationId });
  checkLog(log);
  const resolved = log.find((event) => event.type === 'input.resolved')!.data;
  assert.deepEqual([resolved.action, resolved.content, resolved.by], ['accept', { text: 'blue' }, 'caller']);
  assert.equal(log.findLast((event) => event.type === 'message.created')!.data.content, 'Received: blue');

  const declined = await send({ clientMessageId: 'tck-auth-required-1' }, 'respond-async');
  const question = await asked(declined.runId);
  assert.equal(question.purpose, 'authorization');
  await respond(declined.runId, { requestId: question.requestId, content: null });
  await until('it ends', async () => (await runOf(declined.runId)).status === 'failed');
  assert.equal((await runOf(declined.runId)).error.code, 'refused');

  const cancelled = await send({ clientMessageId: 'tck-input-required-2' }, 'respond-async');
  await asked(cancelled.runId);
  const cancel = await service.api('POST', `/v1/runs/${cancelled.runId}/cancel`);
  assert.equal(cancel.body.run.status, 'cancelled');
});

test('A question and the artifacts before it outlive the service: after a kill the answer reaches the agent that asked.', async () => {
  const sent = await send({ clientMessageId: 'tck-input-required-3' }, 'respond-async');
  const { requestId } = await asked(sent.runId);
  const early = await send({ clientMessageId: 'tck-input-required-4' }, 'respond-async');
  const other = await asked(early.runId);
  await respond(early.runId, { requestId: other.requestId, content: 'before' });
  await service.kill9();
  await service.restart();
  assert.equal((await runOf(sent.runId)).status, 'awaiting_input');
  assert.equal((await respond(sent.runId, { requestId, content: 'tck-artifact-file' })).status, 200);
  for (const [runId, content] of [
    [sent.runId, ''],
    [early.runId, 'Received: before'],
  ] as const) {
    await until('it ends', async () => (await runOf(runId)).status === 'completed');
    const log = await logOf(service, { runId });
    const count = (type: string) => log.filter((event) => event.type === type).length;
    assert.deepEqual(
      ['run.retrying', 'input.requested', 'input.resolved'].map(count),
      [0, 1, 1],
      'the same attempt, asked once',
    );
    assert.equal(log.findLast((event) => event.type === 'message.created')!.data.content, content);
  }
  assert.deepEqual((await artifactsOf(sent.runId))[0].parts, [file]);
});
