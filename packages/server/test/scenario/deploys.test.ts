import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkLog, logOf, workshop, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { openSse } from '../support/sse.ts';
import { until } from '../support/until.ts';

let service: Service;
let shop: Workshop;
before(async () => {
  service = await startService();
  shop = await workshop(service);
});
after(async () => {
  await shop?.close();
  await service?.end();
});

const instructions = { 'AGENTS.md': 'You tell versions.\n' };

async function activeOf(agentId: string): Promise<string> {
  return (await service.api('GET', `/v1/agents/${agentId}`)).body.agent.deploymentId;
}

async function answerOf(asked: { runId: string }): Promise<string> {
  const log = await until('the turn has its answer', async () => {
    const events = await logOf(service, { runId: asked.runId });
    return events.some((event) => event.type === 'run.completed') ? events : null;
  });
  return log.findLast((event) => event.type === 'message.created')!.data.content;
}

test('A running turn ends on its commit while a push deploys another, a roll-back goes back, and own edits survive both.', async () => {
  const agent = await shop.agent({ ...instructions, 'version.txt': 'v-one\n' });
  const first = await agent.say('run: cat version.txt; echo mine > own.txt');
  assert.match(first.message.content, /v-one/);
  const oldDeployment = await activeOf(agent.id);

  const asked = await agent.ask('run: until [ -e go ]; do sleep 0.1; done\nrun: cat version.txt own.txt');
  await until('the first command runs', async () =>
    (await logOf(service, asked)).some((event) => event.type === 'tool.started'),
  );
  const pushed = await agent.push({ 'version.txt': 'v-two\n' });
  assert.equal(pushed.code, 0, pushed.stderr);
  assert.match(pushed.stderr, /remote: .*deploy/i);
  assert.notEqual(await activeOf(agent.id), oldDeployment);
  const during = await service.api('GET', `/v1/runs/${asked.runId}`);
  assert.equal(during.body.run.status, 'running', 'the push was done before the turn was');
  // It waits for the turn of the old commit and then runs on the new one.
  const next = await agent.ask('run: cat version.txt own.txt');
  const type = { 'content-type': 'application/octet-stream' };
  const go = await service.api('PUT', `/sandbox/${agent.id}/files/go`, 'now', type);
  assert.equal(go.status, 201, go.text);
  assert.match(await answerOf(next), /v-two\nmine/);
  assert.match(await answerOf(asked), /v-one\nmine/);
  const ended = await service.api('GET', `/v1/runs/${asked.runId}`);
  assert.equal(ended.body.run.deploymentId, oldDeployment);

  const back = await service.api('POST', `/v1/agents/${agent.id}/deployments/${oldDeployment}/activate`);
  assert.equal(back.status, 200, back.text);
  const rolled = await agent.say('run: cat version.txt own.txt', first.conversationId);
  assert.match(rolled.message.content, /v-one\nmine/);
  checkLog(await logOf(service, { conversationId: first.conversationId }));
});

test('A broken agent.json is refused in the terminal that pushes it, and the earlier deployment goes on answering.', async () => {
  const agent = await shop.agent({ ...instructions, 'version.txt': 'good\n' });
  const deployment = await activeOf(agent.id);
  const pushed = await agent.push({ 'agent.json': '{"permissions": "sometimes"}', 'version.txt': 'bad\n' });
  assert.notEqual(pushed.code, 0, pushed.stderr);
  assert.match(pushed.stderr, /agent\.json: permissions: must be "auto" or "ask"/);
  assert.equal(await activeOf(agent.id), deployment);
  assert.match((await agent.say('run: cat version.txt')).message.content, /good/);

  const mended = await agent.push({ 'agent.json': '{"permissions": "auto"}' });
  assert.equal(mended.code, 0, mended.stderr);
  assert.match((await agent.say('run: cat version.txt')).message.content, /bad/);
});

/** An ACP agent as somebody could put it into a repository: counts until it is told to stop. */
const acpAgent = `
import { createInterface } from 'node:readline';
const write = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
const running = new Map();
let sessions = 0;
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  const say = (text) => write({ method: 'session/update', params: { sessionId: params.sessionId,
    update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } } } });
  if (method === 'initialize') return write({ id, result: { protocolVersion: 1, agentCapabilities: {} } });
  if (method === 'session/new') return write({ id, result: { sessionId: 's' + ++sessions } });
  if (method === 'session/cancel') return running.get(params.sessionId)?.();
  if (method !== 'session/prompt') return;
  const text = params.prompt.map((block) => block.text).join(' ');
  if (!text.includes('count for ever')) {
    for (const word of ['my', ' own', ' agent']) say(word);
    return write({ id, result: { stopReason: 'end_turn' } });
  }
  let count = 0;
  const timer = setInterval(() => say(++count + ' '), 50);
  running.set(params.sessionId, () => {
    clearInterval(timer);
    write({ id, result: { stopReason: 'cancelled' } });
  });
});
`;

test('An agent.json with a command of its own makes that program the agent: it answers, streams and is cancelled.', async () => {
  const agent = await shop.agent({
    'agent.json': '{"command": ["node", "agent.mjs"], "protocol": "acp"}',
    'agent.mjs': acpAgent,
  });
  const answered = await agent.say('hello');
  assert.equal(answered.message?.content, 'my own agent', JSON.stringify(answered));

  const { conversationId } = answered;
  const stream = await openSse(`${service.url}/api/v1/chat/send`, {
    key: service.key,
    method: 'POST',
    body: { agentId: agent.id, conversationId, content: 'count for ever' },
  });
  const deltas = () => stream.frames.filter((frame) => frame.event === 'message.delta').length;
  await until('three deltas have come', () => deltas() >= 3);
  const { runId } = JSON.parse(stream.frames[0]!.data!).data;
  const cancelled = await service.api('POST', `/v1/runs/${runId}/cancel`);
  assert.ok([200, 202].includes(cancelled.status), cancelled.text);
  await until('the stream ends', () => stream.ended);
  assert.equal(stream.frames.at(-1)!.event, 'run.cancelled');
  assert.equal((await agent.say('and now?', conversationId)).message.content, 'my own agent');
  checkLog(await logOf(service, { conversationId }));
});

const asking = `
import { createInterface } from 'node:readline';
const write = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
const waiting = new Map();
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params, result } = JSON.parse(line);
  if (method === undefined) return waiting.get(id)?.(result);
  if (method === 'initialize') return write({ id, result: { protocolVersion: 1, agentCapabilities: {} } });
  if (method === 'session/new') return write({ id, result: { sessionId: 's' + id } });
  if (method !== 'session/prompt') return;
  const ask = 'ask-' + id;
  waiting.set(ask, ({ outcome }) => {
    write({ method: 'session/update', params: { sessionId: params.sessionId, update: {
      sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'chosen: ' + outcome.optionId } } } });
    write({ id, result: { stopReason: 'end_turn' } });
  });
  write({ id: ask, method: 'session/request_permission', params: { sessionId: params.sessionId,
    toolCall: { toolCallId: 't1', title: 'Delete everything', kind: 'delete' },
    options: [{ optionId: 'yes', name: 'Allow', kind: 'allow_once' }, { optionId: 'no', name: 'Reject', kind: 'reject_once' }] } });
});
`;

test('With permissions "ask" a turn waits for the caller, goes on with the answer, and without asking it is allowed at once.', async () => {
  const command = { command: ['node', 'agent.mjs'], protocol: 'acp' };
  const manifest = (permissions: string) => JSON.stringify({ ...command, permissions });
  const agent = await shop.agent({ 'agent.json': manifest('ask'), 'agent.mjs': asking });
  const asked = await agent.ask('go');
  const statusOf = async () => (await service.api('GET', `/v1/runs/${asked.runId}`)).body.run.status;
  await until('the turn waits', async () => (await statusOf()) === 'awaiting_input');
  const log = await logOf(service, asked);
  const request = log.find((event) => event.type === 'permission.requested')!;
  assert.match(JSON.stringify(request.data), /Delete everything/);
  const respond = (body: object) => service.api('POST', `/v1/runs/${asked.runId}/respond`, body);
  const { requestId } = request.data;
  assert.equal((await respond({ requestId, optionId: 'maybe' })).status, 400);
  const answered = await respond({ requestId, optionId: 'no' });
  assert.equal(answered.status, 200, answered.text);
  await until('the turn has ended', async () => (await statusOf()) === 'completed');
  const ended = await logOf(service, { conversationId: asked.conversationId });
  checkLog(ended);
  assert.equal(ended.findLast((event) => event.type === 'message.created')!.data.content, 'chosen: no');

  assert.equal((await agent.push({ 'agent.json': manifest('auto') })).code, 0);
  assert.equal((await agent.say('go', asked.conversationId)).message.content, 'chosen: yes');
});
