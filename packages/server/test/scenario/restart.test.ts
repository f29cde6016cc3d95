import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import { checkLog, logOf, workshop, type LoggedEvent, type Workshop } from '../support/scenario.ts';
import { detached } from '../support/faults.ts';
import { openSse } from '../support/sse.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';
import { checkSeen, view } from '../support/viewer.ts';

const counted = (count: number) => Array.from({ length: count }, (_, index) => `${index + 1} `).join('');
const deltas = (log: LoggedEvent[], runId: string) =>
  log.flatMap((event) =>
    event.type === 'message.delta' && event.data.runId === runId ? [event.data.text] : [],
  );
/** How many words of an answer there are. Not how many pieces: what is told while the disk is busy is one. */
const words = (log: LoggedEvent[], runId: string) => deltas(log, runId).join('').split(' ').length - 1;
const count = (log: LoggedEvent[], type: string, runId: string) =>
  log.filter((event) => event.type === type && event.data.runId === runId).length;

const common = { BERTH_DETACH: 'always', BERTH_WARM_SANDBOXES: '1', BERTH_DRAIN_SECONDS: '0' };
let shared: Service;
let shop: Workshop;
before(async () => {
  shared = await startService({ env: common });
  shop = await workshop(shared);
});
after(async () => {
  await shop?.close();
  await shared?.end();
});

/** An agent of the service that most tests kill and start again; nothing of it is left to the next. */
async function open(t: TestContext, files: Record<string, string> = { 'AGENTS.md': 'x\n' }) {
  const agent = await shop.agent(files);
  t.after(async () => {
    const gone = await shared.api('DELETE', `/v1/agents/${agent.id}`);
    assert.equal(gone.status, 204, gone.text);
  });
  return { service: shared, agent };
}

/** Answers `initialize` only once a file `go` is there, and writes down what it is asked. */
const slowHarness = `
  import { createInterface } from 'node:readline';
  import { appendFileSync, existsSync } from 'node:fs';
  const say = (message) => console.log(JSON.stringify({ jsonrpc: '2.0', ...message }));
  createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    appendFileSync('asked', method + '\\n');
    if (method === 'session/new') return say({ id, result: { sessionId: 'one' } });
    if (method === 'session/prompt') {
      const update = { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'done' } };
      say({ method: 'session/update', params: { sessionId: params.sessionId, update } });
      return say({ id, result: { stopReason: 'end_turn' } });
    }
    const answer = () => existsSync('go')
      ? say({ id, result: { protocolVersion: 1, agentCapabilities: {} } })
      : setTimeout(answer, 20);
    answer();
  });`;

async function ended(service: Service, runId: string): Promise<string> {
  let status = '';
  await until(`run ${runId} has ended`, async () => {
    status = (await service.api('GET', `/v1/runs/${runId}`)).body.run.status;
    return status === 'completed' || status === 'failed' || status === 'cancelled';
  });
  return status;
}

test('A turn whose service is killed in the middle of its answer goes on with the next start: the same attempt, every word once.', async (t) => {
  const { service, agent } = await open(t);
  const { conversationId } = await agent.say('say: the first answer');
  const viewer = view(service, conversationId);
  t.after(() => viewer.stop());
  const { runId } = await agent.ask('slow: 40 50', conversationId);
  for (const least of [5, 12]) {
    await until(`${least} words of the answer have been seen`, () => words(viewer.seen, runId) >= least);
    await service.kill9();
    await service.restart();
  }
  assert.equal(await ended(service, runId), 'completed');
  const log = await logOf(service, { conversationId });
  checkLog(log);
  assert.equal(deltas(log, runId).join(''), counted(40));
  assert.equal(log.findLast((event) => event.type === 'message.created')!.data.content, counted(40));
  assert.equal(count(log, 'run.retrying', runId), 0);
  assert.equal(count(log, 'run.started', runId), 1);
  await until('the viewer has come back and seen all', () => viewer.seen.length >= log.length);
  checkSeen(viewer, log);
  assert.equal((await agent.say('say: and on', conversationId)).message.content, 'and on');
});

test('A command that runs while the service is killed runs once, and its result is in the answer.', async (t) => {
  const { service, agent } = await open(t);
  const { runId, conversationId } = await agent.ask(
    'run: echo begun >> times; sleep 3; echo over; wc -l < times',
  );
  await until(
    'the command has begun',
    async () => count(await logOf(service, { runId }), 'tool.started', runId) === 1,
  );
  await service.kill9();
  await service.restart();
  assert.equal(await ended(service, runId), 'completed');
  const log = await logOf(service, { conversationId });
  checkLog(log);
  assert.equal(count(log, 'run.retrying', runId), 0);
  assert.equal(count(log, 'tool.started', runId), 1);
  const finished = log.filter((event) => event.type === 'tool.finished');
  assert.equal(finished.length, 1);
  assert.equal(finished[0]!.data.status, 'completed');
  assert.match(`${finished[0]!.data.output}`, /over\n1\n/);
});

test('A start whose service is killed again and again before its harness has answered is kept: the turn runs in its sandbox, once.', async (t) => {
  const { service, agent } = await open(t, {
    'agent.json': JSON.stringify({ command: ['node', 'agent.mjs'], protocol: 'acp' }),
    'agent.mjs': slowHarness,
  });
  const workspace = join(service.dataDir, 'volumes', agent.id, 'workspace');
  const asked = () => {
    const file = join(workspace, 'asked');
    return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
  };
  const { runId } = await agent.ask('go on');
  await until('its harness is asked', () => asked().length > 0);
  // The second time it is one that was taken up already.
  for (let kills = 0; kills < 2; kills += 1) {
    await service.kill9();
    await service.restart();
    const { body } = await service.api('GET', `/sandbox/${agent.id}`);
    assert.equal(body.sandbox.state, 'starting');
  }
  writeFileSync(join(workspace, 'go'), '');
  assert.equal(await ended(service, runId), 'completed');
  assert.deepEqual(asked(), ['initialize', 'session/new', 'session/prompt']);
});

test('On SIGTERM a turn that does not end in time is left to the next start; on SIGINT nothing is left of it.', async (t) => {
  const { service, agent } = await open(t);
  const { runId } = await agent.ask('slow: 60 50');
  await until('the answer has begun', async () => words(await logOf(service, { runId }), runId) > 2);
  await service.stop('SIGTERM');
  await service.restart();
  assert.equal(await ended(service, runId), 'completed');
  const log = await logOf(service, { runId });
  assert.equal(deltas(log, runId).join(''), counted(60));
  assert.equal(count(log, 'run.retrying', runId), 0);

  // This one is held, so that it cannot end before the signal comes.
  const second = await agent.ask('run: until [ -e go-on ]; do sleep 0.1; done; echo over');
  await until(
    'the next command has begun',
    async () => count(await logOf(service, { runId: second.runId }), 'tool.started', second.runId) === 1,
  );
  await service.stop('SIGINT');
  writeFileSync(join(service.dataDir, 'volumes', agent.id, 'workspace', 'go-on'), '');
  await service.restart();
  assert.equal(await ended(service, second.runId), 'completed');
  assert.equal(count(await logOf(service, { runId: second.runId }), 'run.retrying', second.runId), 1);
});

/** Counts on standard error for as long as it is there. */
const ticking = `
  import { createInterface } from 'node:readline';
  let ticks = 0;
  setInterval(() => console.error('tick ' + ++ticks), 50);
  createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method } = JSON.parse(line);
    if (method !== 'initialize') return;
    console.log(JSON.stringify({ jsonrpc: '2.0', id, result: { protocolVersion: 1, agentCapabilities: {} } }));
  });`;

test('A position in the log of a sandbox that the next process has taken up is followed by every line that is there.', async (t) => {
  const manifest = JSON.stringify({ command: ['node', 'agent.mjs'], protocol: 'acp' });
  const { service, agent } = await open(t, { 'agent.json': manifest, 'agent.mjs': ticking });
  const path = `${service.url}/sandbox/${agent.id}/logs`;
  const read = async (position = '') => {
    const headers = { authorization: `Bearer ${service.key}` };
    const answer = await fetch(`${path}?after=${position}`, { headers });
    assert.equal(answer.status, 200);
    const lines = (await answer.text()).split('\n').slice(0, -1);
    return { lines, position: answer.headers.get('berth-log-position') ?? '' };
  };
  /** More lines than those whose numbers the next process gives again. */
  const longer = async (least: number) => {
    let log = await read();
    await until('lines have come', async () => (log = await read()).lines.length > least);
    return log;
  };
  assert.equal((await service.api('POST', `/sandbox/${agent.id}/start`)).status, 200);
  const before = await longer(8);
  await service.kill9();
  await service.restart();
  const held = await longer(before.lines.length + 8);
  assert.match(held.lines.join('\n'), /berth: The sandbox was taken up again/);
  const [sandboxId] = before.position.split(':');
  for (const position of [before.position, `${sandboxId}:8`]) {
    const { lines } = await read(position);
    assert.deepEqual(lines.slice(0, held.lines.length), held.lines, position);
    const stream = await openSse(path, { key: service.key, headers: { 'last-event-id': position } });
    t.after(() => stream.close());
    await until('as many came', () => stream.frames.length >= held.lines.length);
    const told = stream.frames.map(({ data }) => JSON.parse(data!)).map(({ at, text }) => `${at} ${text}`);
    assert.deepEqual(told.slice(0, held.lines.length), held.lines, position);
  }
  // One of this process is gone on from as ever.
  const more = await longer(held.lines.length);
  const rest = (await read(held.position)).lines;
  const added = more.lines.slice(held.lines.length);
  assert.deepEqual(rest.slice(0, added.length), added);
});

test('The time limit of a turn goes on while the service is away.', async (t) => {
  const limitMs = 10_000;
  const service = await startService({ env: { ...common, BERTH_RUN_TIMEOUT_SECONDS: `${limitMs / 1_000}` } });
  t.after(() => service.end());
  const own = await workshop(service);
  t.after(() => own.close());
  const agent = await own.agent({ 'AGENTS.md': 'x\n' });
  // The start of a sandbox counts as well, and takes its time on a busy machine.
  const warm = await agent.say('say: warm');
  assert.equal(warm.status, 'completed', JSON.stringify(warm));
  const { runId } = await agent.ask('slow: 500 50');
  // So much of the limit is used that a limit which began anew would end seconds later than this one, however late that is.
  await until(
    'the answer has gone on for a while',
    async () => words(await logOf(service, { runId }), runId) > 80,
  );
  await service.kill9();
  const killedMs = Date.now();
  await service.restart();
  assert.equal(await ended(service, runId), 'failed');
  const { run } = (await service.api('GET', `/v1/runs/${runId}`)).body;
  assert.ok(Date.parse(run.endedAt) < killedMs + limitMs, 'the limit did not begin anew');
  assert.equal(run.error.code, 'timeout');
  assert.equal(run.attempt, 1);
});

/** Of a sandbox that is just being removed the process may be gone already. */
function kill(pids: number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

/** An agent of a repository that asks before it acts, and tells what it heard in pieces. */
const asking = `
  import { createInterface } from 'node:readline';
  const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
  const chunk = (text) => say({ method: 'session/update', params: { sessionId: 's', update: {
    sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } } } });
  const options = [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }, { optionId: 'no', name: 'No', kind: 'reject_once' }];
  let prompt = null;
  createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method, params, result } = JSON.parse(line);
    if (method === 'initialize') return say({ id, result: { protocolVersion: 1, agentCapabilities: {} } });
    if (method === 'session/new') return say({ id, result: { sessionId: 's' } });
    if (method === 'session/prompt') {
      prompt = id;
      chunk('before, ');
      return say({ id: 'question', method: 'session/request_permission', params: { sessionId: 's', options,
        toolCall: { toolCallId: 't1', title: 'Do it', status: 'pending' } } });
    }
    if (id !== 'question') return;
    chunk('heard ' + result.outcome.optionId);
    say({ method: 'session/update', params: { sessionId: 's', update: {
      sessionUpdate: 'tool_call_update', toolCallId: 't1', status: 'completed' } } });
    say({ id: prompt, result: { stopReason: 'end_turn' } });
  });`;

for (const answered of ['after the restart', 'just before the service is killed']) {
  test(`A question that is answered ${answered} reaches an agent that asked before it.`, async (t) => {
    const manifest = JSON.stringify({ command: ['node', 'agent.mjs'], permissions: 'ask' });
    const { service, agent } = await open(t, { 'agent.json': manifest, 'agent.mjs': asking });
    const { runId, conversationId } = await agent.ask('please');
    const asked = async () =>
      (await logOf(service, { runId })).find((event) => event.type === 'permission.requested');
    await until('it has asked', async () => (await asked()) !== undefined);
    const { requestId } = (await asked())!.data;
    const respond = () => service.api('POST', `/v1/runs/${runId}/respond`, { requestId, optionId: 'yes' });
    if (answered.startsWith('just')) await respond();
    await service.kill9();
    await service.restart();
    if (!answered.startsWith('just')) {
      assert.equal((await service.api('GET', `/v1/runs/${runId}`)).body.run.status, 'awaiting_input');
      assert.equal((await respond()).status, 200);
    }
    assert.equal(await ended(service, runId), 'completed');
    const log = await logOf(service, { conversationId });
    checkLog(log);
    assert.equal(count(log, 'run.retrying', runId), 0);
    assert.equal(count(log, 'permission.requested', runId), 1);
    assert.equal(count(log, 'permission.resolved', runId), 1);
    assert.match(
      log.findLast((event) => event.type === 'message.created')!.data.content,
      /^before, \s*heard yes$/,
    );
  });
}

/** Asks all at once, waits for every answer, and at its next message tells how often each question was answered. */
const askingAtOnce = `
  import { createInterface } from 'node:readline';
  const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
  const options = [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }];
  const answers = {};
  let sessions = 0, prompt = null;
  createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    if (method === 'initialize') return say({ id, result: { protocolVersion: 1, agentCapabilities: {} } });
    if (method === 'session/new') return say({ id, result: { sessionId: 's' + ++sessions } });
    if (method === 'session/prompt') {
      const { sessionId } = params;
      if (prompt !== null) {
        const text = Object.values(answers).join(' ');
        say({ method: 'session/update', params: { sessionId, update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } } } });
        return say({ id, result: { stopReason: 'end_turn' } });
      }
      prompt = id;
      for (let n = 1; n <= 8; n += 1)
        say({ id: 'q' + n, method: 'session/request_permission', params: { sessionId, options,
          toolCall: { toolCallId: 't' + n, title: 'Do it', status: 'pending' } } });
    }
    if (method !== undefined) return;
    answers[id] = (answers[id] ?? 0) + 1;
    if (Object.keys(answers).length === 8) say({ id: prompt, result: { stopReason: 'cancelled' } });
  });`;

test('Questions that were cancelled with their run just before the service is killed are answered once.', async (t) => {
  const manifest = JSON.stringify({ command: ['node', 'agent.mjs'], permissions: 'ask' });
  const { service, agent } = await open(t, { 'agent.json': manifest, 'agent.mjs': askingAtOnce });
  const { runId, conversationId } = await agent.ask('please');
  await until(
    'it has asked',
    async () => count(await logOf(service, { runId }), 'permission.requested', runId) === 8,
  );
  assert.equal((await service.api('POST', `/v1/runs/${runId}/cancel`)).status, 200);
  assert.equal(await ended(service, runId), 'cancelled');
  await service.kill9();
  await service.restart();
  assert.equal((await agent.say('tell', conversationId)).message.content, '1 1 1 1 1 1 1 1');
  checkLog(await logOf(service, { conversationId }));
});

test('A turn whose sandbox ended while the service was away is tried again.', async (t) => {
  const { service, agent } = await open(t);
  const { runId } = await agent.ask('slow: 30 100');
  await until('the answer has begun', async () => words(await logOf(service, { runId }), runId) > 2);
  await service.kill9();
  kill(detached(service).map((sandbox) => sandbox.initPid));
  await service.restart();
  assert.equal(await ended(service, runId), 'completed');
  const log = await logOf(service, { runId });
  checkLog(log);
  assert.equal(count(log, 'run.retrying', runId), 1);
  assert.equal(
    log.find((event) => event.type === 'message.created' && event.data.role === 'assistant')?.data.content,
    counted(30),
  );
});

test('A sandbox that is ended from outside has its turn tried again, and does not fail it.', async (t) => {
  const { service, agent } = await open(t);
  const { runId } = await agent.ask('slow: 30 100');
  await until('the answer has begun', async () => words(await logOf(service, { runId }), runId) > 2);
  kill(detached(service).map((sandbox) => sandbox.monitorPid));
  assert.equal(await ended(service, runId), 'completed');
  assert.equal(count(await logOf(service, { runId }), 'run.retrying', runId), 1);
});
