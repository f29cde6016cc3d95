import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { checkList, kindsOf } from './acp-checks.ts';
import { until } from './until.ts';

const { checks, check } = checkList();

/** `session/prompt` and `session/cancel`. */
export const turnChecks = checks;

// session/prompt
check('a prompt ends with end_turn, its text before the response', async ({ peer }) => {
  const sessionId = await peer.open();
  const answer = await peer.prompt(sessionId, 'say: the answer');
  assert.equal(answer.stopReason, 'end_turn');
  const at = peer.messages().findIndex((message) => message.result === answer);
  const last = peer.messages().findLastIndex(({ params }) => params?.sessionId === sessionId);
  assert.ok(last < at, 'updates come before the response');
  assert.equal(peer.text(sessionId), 'the answer');
});
check('chunks of one message have one id, and another answer has another', async ({ peer }) => {
  const sessionId = await peer.open();
  await peer.prompt(sessionId, 'slow: 5 20');
  await peer.prompt(sessionId, 'slow: 5 20');
  const ids = peer.updates(sessionId).flatMap((update) => update.messageId ?? []);
  assert.equal(new Set(ids).size, 2);
});
check('the prompt itself is not told back while it runs', async ({ peer }) => {
  const sessionId = await peer.open();
  await peer.prompt(sessionId, 'say: x');
  assert.equal(kindsOf(peer, sessionId).includes('user_message_chunk'), false);
});
check('a prompt with a link and with _meta is taken', async ({ peer }) => {
  const sessionId = await peer.open();
  const answer = await peer.result('session/prompt', {
    sessionId,
    prompt: [
      { type: 'text', text: 'say: ' },
      { type: 'resource_link', name: 'notes.md', uri: 'file:///home/me/notes.md' },
    ],
    _meta: { trace: 'x' },
  });
  assert.equal(answer.stopReason, 'end_turn');
});
check('embedded context, an image and sound are taken', async ({ peer }) => {
  const sessionId = await peer.open();
  const answer = await peer.result('session/prompt', {
    sessionId,
    prompt: [
      { type: 'text', text: 'say: seen' },
      { type: 'resource', resource: { uri: 'file:///a.txt', mimeType: 'text/plain', text: 'content' } },
      { type: 'image', mimeType: 'image/png', data: 'iVBORw0KGgo=' },
      { type: 'audio', mimeType: 'audio/wav', data: 'UklGRg==' },
    ],
  });
  assert.equal(answer.stopReason, 'end_turn');
});
check('a prompt without a block is -32602', async ({ peer }) => {
  assert.equal(
    (await peer.error('session/prompt', { sessionId: await peer.open(), prompt: [] })).code,
    -32602,
  );
});
check('a prompt with empty text is -32602', async ({ peer }) => {
  const prompt = [{ type: 'text', text: '' }];
  assert.equal((await peer.error('session/prompt', { sessionId: await peer.open(), prompt })).code, -32602);
});
check('a prompt of an unknown session is -32002 and names it', async ({ peer }) => {
  const sessionId = randomUUID();
  const error = await peer.error('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'x' }] });
  assert.equal(error.code, -32002);
  assert.equal(error.data.sessionId, sessionId);
});
check('a prompt of a session that is no id at all is -32002', async ({ peer }) => {
  const prompt = [{ type: 'text', text: 'x' }];
  assert.equal((await peer.error('session/prompt', { sessionId: 'nonsense', prompt })).code, -32002);
});
check('two sessions of a connection do not mix', async ({ peer }) => {
  const [one, two] = [await peer.open(), await peer.open()];
  await Promise.all([peer.prompt(one, 'say: first'), peer.prompt(two, 'say: second')]);
  assert.deepEqual([peer.text(one), peer.text(two)], ['first', 'second']);
});
check('two prompts of a session run one after the other', async ({ peer }) => {
  const sessionId = await peer.open();
  await Promise.all([peer.prompt(sessionId, 'say: one,'), peer.prompt(sessionId, 'say: two')]);
  assert.ok(['one,two', 'twoone,'].includes(peer.text(sessionId)), peer.text(sessionId));
});
check('a conversation remembers: what it used is told', async ({ peer }) => {
  const sessionId = await peer.open();
  await peer.prompt(sessionId, 'say: x');
  const usage = peer.updates(sessionId).findLast((update) => update.sessionUpdate === 'usage_update');
  assert.ok(usage.used > 0);
  assert.equal(usage.cost.currency, 'USD');
});
check('a command of the agent is a tool call with its output', async ({ peer }) => {
  const sessionId = await peer.open();
  await peer.prompt(sessionId, 'run: echo from inside');
  const calls = peer.updates(sessionId).filter((update) => update.sessionUpdate.startsWith('tool_call'));
  assert.equal(calls[0].sessionUpdate, 'tool_call');
  assert.equal(calls[0].kind, 'execute');
  assert.equal(calls.at(-1).status, 'completed');
  assert.match(JSON.stringify(calls.at(-1)), /from inside/);
  assert.equal(new Set(calls.map((call) => call.toolCallId)).size, 1);
});

// session/cancel
check('session/cancel ends the prompt with cancelled, and nothing comes after it', async ({ peer }) => {
  const sessionId = await peer.open();
  const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'slow: 500 50' }] });
  await until('it has begun', () => peer.text(sessionId) !== '');
  peer.notify('session/cancel', { sessionId });
  const answer = await peer.answerTo(id);
  assert.equal(answer.result.stopReason, 'cancelled');
  const at = peer.messages().indexOf(answer);
  await peer.result('session/list', {});
  const later = peer.messages().slice(at + 1);
  assert.deepEqual(
    later.filter(
      ({ params }) => params?.sessionId === sessionId && params.update.sessionUpdate !== 'usage_update',
    ),
    [],
  );
});
check('session/cancel right after the prompt cancels it too', async ({ peer }) => {
  const sessionId = await peer.open();
  const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'slow: 500 50' }] });
  peer.notify('session/cancel', { sessionId });
  assert.equal((await peer.answerTo(id)).result.stopReason, 'cancelled');
});
check('$/cancel_request of a prompt cancels it', async ({ peer }) => {
  const sessionId = await peer.open();
  const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'slow: 500 50' }] });
  await until('it has begun', () => peer.text(sessionId) !== '');
  peer.notify('$/cancel_request', { requestId: id });
  const answer = await peer.answerTo(id);
  assert.ok(
    answer.result?.stopReason === 'cancelled' || answer.error?.code === -32800,
    JSON.stringify(answer),
  );
});
check('a session goes on after a cancel', async ({ peer }) => {
  const sessionId = await peer.open();
  const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'slow: 500 50' }] });
  peer.notify('session/cancel', { sessionId });
  await peer.answerTo(id);
  assert.equal((await peer.prompt(sessionId, 'say: and on')).stopReason, 'end_turn');
});
check('session/cancel of nothing, and of an unknown session, does nothing', async ({ peer }) => {
  peer.notify('session/cancel', { sessionId: await peer.open() });
  peer.notify('session/cancel', { sessionId: randomUUID() });
  await peer.result('session/list', {});
});
