import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { checkList, place, type Bench } from './acp-checks.ts';
import { until } from './until.ts';

const { checks, check } = checkList();

/** `session/load`, `resume`, `list`, `close` and `delete`. */
export const sessionChecks = checks;

/** A turn that has told the first half of its answer, and the second only when it is let go on. */
async function midTurn({ varied: peer }: Bench) {
  peer.onRequest = () => null;
  const sessionId = await peer.open();
  const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'ask' }] });
  await until('it asks', () => peer.requests('session/request_permission', sessionId).length === 1);
  const [asked] = peer.requests('session/request_permission', sessionId);
  const goOn = async (): Promise<void> => {
    const result = { outcome: { outcome: 'selected', optionId: 'yes' } };
    peer.wire.send({ jsonrpc: '2.0', id: asked.id, result });
    await peer.answerTo(id);
    assert.match(peer.text(sessionId), /heard yes/);
  };
  return { sessionId, peer, goOn };
}

// session/load, resume, list, close, delete
check('session/load tells the past before its response, which is empty', async ({ peer, connect }) => {
  const sessionId = await peer.open();
  await peer.prompt(sessionId, 'say: the first answer');
  await peer.prompt(sessionId, 'run: echo tool');
  const other = await connect();
  const answer = await other.result('session/load', { sessionId, ...place });
  assert.deepEqual(answer, {});
  const before = other.messages().slice(
    0,
    other.messages().findIndex(({ result }) => result === answer),
  );
  const told = before.flatMap(({ params }) => params?.update ?? []);
  assert.deepEqual(
    told.flatMap((update) => (update.sessionUpdate === 'user_message_chunk' ? [update.content.text] : [])),
    ['say: the first answer', 'run: echo tool'],
  );
  assert.equal(other.text(sessionId), peer.text(sessionId));
  assert.ok(told.some((update) => update.sessionUpdate === 'tool_call'));
  other.wire.leave();
});
check('session/load of a session in which nothing was said tells nothing', async ({ peer, connect }) => {
  const sessionId = await peer.open();
  const other = await connect();
  assert.deepEqual(await other.result('session/load', { sessionId, ...place }), {});
  assert.deepEqual(other.updates(), []);
  assert.equal((await other.prompt(sessionId, 'say: x')).stopReason, 'end_turn');
  other.wire.leave();
});
check('session/load of an unknown session is -32002', async ({ peer }) => {
  const error = await peer.error('session/load', { sessionId: randomUUID(), ...place });
  assert.equal(error.code, -32002);
});
check('session/load with a folder that is not absolute is -32602', async ({ peer }) => {
  const sessionId = await peer.open();
  assert.equal((await peer.error('session/load', { sessionId, cwd: '.', mcpServers: [] })).code, -32602);
});
check('session/load in the middle of a turn tells the rest of it as it comes', async (bench) => {
  const { sessionId, peer, goOn } = await midTurn(bench);
  const other = await bench.connect('varied');
  other.onRequest = () => null;
  await other.result('session/load', { sessionId, ...place });
  assert.equal(other.text(sessionId), peer.text(sessionId));
  await goOn();
  const ended = () => other.updates(sessionId).find((update) => update._meta?.['berth.dev']?.run);
  await until('the other saw the end', () => ended() !== undefined);
  assert.equal(ended()._meta['berth.dev'].run.status, 'completed');
  assert.equal(other.text(sessionId), peer.text(sessionId));
  other.wire.leave();
});
check('session/cancel by a client that loaded a running turn ends it', async ({ peer, connect }) => {
  const sessionId = await peer.open();
  const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'slow: 500 50' }] });
  await until('it has begun', () => peer.text(sessionId) !== '');
  const other = await connect();
  await other.result('session/load', { sessionId, ...place });
  other.notify('session/cancel', { sessionId });
  assert.equal((await peer.answerTo(id)).result.stopReason, 'cancelled');
  other.wire.leave();
});
check('session/resume tells nothing of the past', async ({ peer, connect }) => {
  const sessionId = await peer.open();
  await peer.prompt(sessionId, 'say: past');
  const other = await connect();
  await other.result('session/resume', { sessionId, ...place });
  assert.deepEqual(other.updates(), []);
  await other.prompt(sessionId, 'say: now');
  assert.equal(other.text(sessionId), 'now');
  other.wire.leave();
});
check('session/resume in the middle of a turn tells the rest of it only', async (bench) => {
  const { sessionId, peer, goOn } = await midTurn(bench);
  const before = peer.text(sessionId);
  const other = await bench.connect('varied');
  other.onRequest = () => null;
  await other.result('session/resume', { sessionId, ...place });
  await goOn();
  const ended = () => other.updates(sessionId).some((update) => update._meta?.['berth.dev']?.run);
  await until('the other saw the end', ended);
  assert.notEqual(before, '');
  assert.equal(before + other.text(sessionId), peer.text(sessionId));
  other.wire.leave();
});
check('session/resume of an unknown session is -32002', async ({ peer }) => {
  assert.equal((await peer.error('session/resume', { sessionId: randomUUID(), ...place })).code, -32002);
});
check('session/list is a list of sessions with folder, title and time', async ({ peer }) => {
  const sessionId = await peer.open('/home/me/listed');
  await peer.prompt(sessionId, 'say: listed');
  const { sessions } = await peer.result('session/list', { cwd: '/home/me/listed' });
  assert.equal(sessions[0].sessionId, sessionId);
  assert.equal(sessions[0].cwd, '/home/me/listed');
  assert.equal(sessions[0].title, 'say: listed');
  assert.ok(Date.parse(sessions[0].updatedAt) > 0);
});
check('session/list of a folder without sessions is empty', async ({ peer }) => {
  assert.deepEqual((await peer.result('session/list', { cwd: `/none/${randomUUID()}` })).sessions, []);
});
check('session/list refuses a cursor that it has not given', async ({ peer }) => {
  assert.equal((await peer.error('session/list', { cursor: 'made-up' })).code, -32602);
});
check('session/close cancels the prompt under way, and the session is closed', async ({ peer }) => {
  const sessionId = await peer.open();
  const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'slow: 500 50' }] });
  await until('it has begun', () => peer.text(sessionId) !== '');
  assert.deepEqual(await peer.result('session/close', { sessionId }), {});
  assert.equal((await peer.answerTo(id)).result.stopReason, 'cancelled');
  const prompt = [{ type: 'text', text: 'x' }];
  assert.equal((await peer.error('session/prompt', { sessionId, prompt })).code, -32002);
  await peer.result('session/load', { sessionId, ...place });
});
check('session/close of a session that is not open is -32002', async ({ peer }) => {
  assert.equal((await peer.error('session/close', { sessionId: randomUUID() })).code, -32002);
});
check('session/delete takes the session away, and twice is fine', async ({ peer }) => {
  const sessionId = await peer.open('/home/me/deleted');
  await peer.prompt(sessionId, 'say: x');
  assert.deepEqual(await peer.result('session/delete', { sessionId }), {});
  assert.deepEqual(await peer.result('session/delete', { sessionId }), {});
  assert.deepEqual((await peer.result('session/list', { cwd: '/home/me/deleted' })).sessions, []);
  assert.equal((await peer.error('session/load', { sessionId, ...place })).code, -32002);
});
