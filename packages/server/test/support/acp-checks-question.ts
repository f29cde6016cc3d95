import assert from 'node:assert/strict';
import { checkList, kindsOf, place } from './acp-checks.ts';
import { until } from './until.ts';

const { checks, check } = checkList();

/** What an agent asks and shows, and the end. */
export const questionChecks = checks;

// What an agent asks and shows.
check(
  'a permission is asked of the client that prompts, and its choice reaches the agent',
  async ({ varied: peer }) => {
    peer.onRequest = () => ({ outcome: { outcome: 'selected', optionId: 'no' } });
    const sessionId = await peer.open();
    await peer.prompt(sessionId, 'ask');
    const [asked] = peer.requests('session/request_permission', sessionId);
    assert.equal(asked.params.sessionId, sessionId);
    assert.deepEqual(
      asked.params.options.map((option: { optionId: string }) => option.optionId),
      ['yes', 'no'],
    );
    assert.match(peer.text(sessionId), /heard no/);
  },
);
check(
  'session/cancel while a permission is asked ends the prompt with cancelled',
  async ({ varied: peer }) => {
    peer.onRequest = () => null;
    const sessionId = await peer.open();
    const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'ask' }] });
    await until('it asks', () => peer.requests('session/request_permission', sessionId).length === 1);
    peer.notify('session/cancel', { sessionId });
    const [asked] = peer.requests('session/request_permission', sessionId);
    peer.wire.send({ jsonrpc: '2.0', id: asked.id, result: { outcome: { outcome: 'cancelled' } } });
    assert.equal((await peer.answerTo(id)).result.stopReason, 'cancelled');
  },
);
check('a client that answers a permission with an error has refused it', async ({ varied: peer }) => {
  peer.onRequest = () => null;
  const sessionId = await peer.open();
  const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'ask' }] });
  await until('it asks', () => peer.requests('session/request_permission', sessionId).length === 1);
  const [asked] = peer.requests('session/request_permission', sessionId);
  peer.wire.send({ jsonrpc: '2.0', id: asked.id, error: { code: -32601, message: 'Method not found' } });
  await peer.answerTo(id);
  assert.match(peer.text(sessionId), /heard no/);
});
check('a client without forms is asked nothing, one with forms is', async ({ varied: plain, forms }) => {
  const sessionId = await plain.open();
  const id = plain.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'form' }] });
  const begun = async () => (await forms.result('session/list', {})).sessions[0]?.sessionId === sessionId;
  await until('the session is there', begun);
  forms.onRequest = () => ({ action: 'accept', content: { name: 'Ada' } });
  await forms.result('session/load', { sessionId, ...place });
  await until('the one with forms is asked', () => forms.requests('elicitation/create').length === 1);
  await plain.answerTo(id);
  assert.match(plain.text(sessionId), /hello Ada/);
  assert.equal(plain.requests('elicitation/create').length, 0);
});
check('a form that is declined reaches the agent so', async ({ forms: peer }) => {
  peer.onRequest = () => ({ action: 'decline' });
  const sessionId = await peer.open();
  await peer.prompt(sessionId, 'form');
  assert.match(peer.text(sessionId), /decline/);
});
check('thoughts, plans, tool calls, images and data come as what they are', async ({ varied: peer }) => {
  const sessionId = await peer.open();
  await peer.prompt(sessionId, 'all');
  const told = kindsOf(peer, sessionId);
  for (const kind of ['agent_thought_chunk', 'plan', 'tool_call', 'tool_call_update', 'agent_message_chunk'])
    assert.ok(told.includes(kind), `${kind} in ${told.join(' ')}`);
  const contents = peer.updates(sessionId).flatMap((update) => update.content?.type ?? []);
  assert.ok(contents.includes('image') && contents.includes('resource'), contents.join(' '));
});
check('an agent that refuses ends with refusal', async ({ varied: peer }) => {
  const sessionId = await peer.open();
  assert.equal((await peer.prompt(sessionId, 'refuse')).stopReason, 'refusal');
  assert.match(peer.text(sessionId), /I will not/);
});
check('files and links of a prompt reach the agent as blocks', async ({ varied: peer }) => {
  const sessionId = await peer.open();
  await peer.result('session/prompt', {
    sessionId,
    prompt: [
      { type: 'text', text: 'see ' },
      { type: 'resource', resource: { uri: 'file:///x/a.txt', mimeType: 'text/plain', text: 'inside' } },
      { type: 'image', mimeType: 'image/png', data: 'iVBORw0KGgo=' },
      { type: 'resource_link', name: 'page', uri: 'https://example.com/page' },
    ],
  });
  const blocks = JSON.parse(peer.text(sessionId)) as {
    type: string;
    resource?: { text: string };
    uri?: string;
  }[];
  assert.deepEqual(
    blocks.map((block) => block.type),
    ['text', 'resource', 'image', 'resource_link'],
  );
  assert.equal(blocks[1]!.resource!.text, 'inside');
  assert.equal(blocks[3]!.uri, 'https://example.com/page');
});

// The end.
check('fs and terminal of the client are never called', async ({ peer }) => {
  const called = peer.messages().filter(({ method }) => /^(fs|terminal)\//.test(method ?? ''));
  assert.deepEqual(called, []);
});
check('nothing but messages came, one a line', async ({ peer }) => {
  assert.deepEqual(peer.wire.junk, []);
});
check('the connection ends when the client leaves; the bridge exits with 0', async ({ fresh, isBridge }) => {
  const peer = await fresh();
  peer.wire.leave();
  const end = await peer.wire.closed;
  if (isBridge) assert.equal(end, 0);
});
