import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { HarnessUpdate } from '../../src/domain/ports/harness.ts';
import { Endpoint } from '../../src/harness/control/endpoint.ts';
import { frameKinds as kinds, jsonFrame, linesFrame } from '../../src/harness/control/frames.ts';
import { RpcPeer } from '../../src/harness/rpc-peer.ts';
import { ToolCall } from '../../src/harness/tool-call.ts';
import { agentSource, endTurn, startForeign } from '../support/foreign-agent.ts';
import { runTurn } from '../support/harness-fixture.ts';
import { inTime, until } from '../support/until.ts';

const pace = { burst: 2 ** 40, perSecond: 2 ** 40 };

/** A channel whose launcher is in the hands of the test; `perLine` is what each line is charged for. */
async function open(t: TestContext, perLine: number) {
  const folder = await mkdtemp(join(tmpdir(), 'bp-'));
  const path = join(folder, 'control.sock');
  const endpoint = await Endpoint.open(path, { onFault: (error) => assert.fail(String(error)), pace });
  const got: string[] = [];
  const broken: string[] = [];
  endpoint.events = {
    onLine(line) {
      got.push(line);
      endpoint.charge(perLine);
    },
    onHello: () => endpoint.welcome(),
    onBroken: (why) => void broken.push(why),
  };
  const socket: Socket = connect(path);
  socket.on('error', () => undefined);
  t.after(async () => {
    socket.destroy();
    endpoint.close();
    await rm(folder, { recursive: true });
  });
  socket.write(jsonFrame(kinds.hello, 0, { version: 1, base: 0, received: 0, notes: [] }));
  await once(socket, 'data');
  socket.resume();
  return { endpoint, got, broken, socket, path };
}

const closed = (socket: Socket) => new Promise((resolve) => socket.once('close', resolve));

/** Counts, for each turn of the event loop, what `count` has grown by; gives the most. */
function mostInATurn(t: TestContext, count: () => number): () => number {
  let most = 0;
  let before = 0;
  let isOver = false;
  const look = () => {
    most = Math.max(most, count() - before);
    before = count();
    if (!isOver) setImmediate(look);
  };
  look();
  t.after(() => (isOver = true));
  return () => Math.max(most, count() - before);
}

const all = Array.from({ length: 100 }, (_, at) => `{"line":${at}}`);
const allLines = linesFrame(0, Buffer.from(`${all.join('\n')}\n`));

test('lines that came in one piece wait for each other where they cost much, and what follows them stays behind them', async (t) => {
  const { endpoint, got, socket } = await open(t, 600 * 1024);
  const most = mostInATurn(t, () => got.length);
  const exec = endpoint.commands.exec({ command: ['x'] });
  const lineCounts: number[] = [];
  exec.catch(() => lineCounts.push(got.length));
  const refused = jsonFrame(kinds.refused, 1, { code: 'failed', message: 'no' });
  socket.write(Buffer.concat([allLines, refused, allLines]));
  await until('all have come', () => got.length === 2 * all.length);
  assert.deepEqual(got, [...all, ...all]);
  assert.ok(most() <= 4, `${most()} in one turn`);
  assert.ok(lineCounts[0]! >= all.length && lineCounts[0]! < 2 * all.length, String(lineCounts));
});

test('of a launcher that has gone, what had come is handled to its end', async (t) => {
  const { endpoint, got, socket } = await open(t, 2 ** 20);
  socket.end(allLines);
  await endpoint.drained();
  assert.deepEqual(got, all);
});

test('while something told has to be on record first nothing more is read; what was sent before an end is', async (t) => {
  const { endpoint, got, socket } = await open(t, 0);
  const goOn = endpoint.wait();
  endpoint.isHurried = true;
  socket.write(allLines);
  for (let turn = 0; turn < 50; turn += 1) await new Promise(setImmediate);
  assert.equal(got.length, 0);
  goOn();
  await until('all have come', () => got.length === all.length);
  endpoint.wait();
  socket.end(allLines);
  await endpoint.drained();
  assert.equal(got.length, 2 * all.length);
});

test('that a channel is broken is told once, whatever came in the same piece, and nobody is let in after it', async (t) => {
  const { got, broken, socket, path } = await open(t, 0);
  const wrong = jsonFrame(99 as 10, 0, {});
  socket.write(Buffer.concat([wrong, wrong, allLines, wrong]));
  await closed(socket);
  assert.deepEqual(broken, ['It sent a frame of an unknown kind.']);
  assert.equal(got.length, 0);
  const next = connect(path);
  next.on('error', () => undefined);
  next.write(jsonFrame(kinds.hello, 0, { version: 1, base: 0, received: 0, notes: [] }));
  await closed(next);
  assert.equal(broken.length, 1);
});

test('requests that wait for one thing are answered in order, some of them in each turn of the event loop', async (t) => {
  const written: string[] = [];
  const done = Promise.withResolvers<void>();
  const peer = new RpcPeer({
    write: (text) => void written.push(text),
    onNotification: () => undefined,
    onRequest: async () => done.promise.then(() => ({})),
    onJunk: assert.fail,
  });
  const answers = () => written.join('').split('\n').slice(0, -1);
  let count = 0;
  const most = mostInATurn(t, () => (count = answers().length));
  for (let id = 0; id < 2000; id += 1) peer.line(JSON.stringify({ jsonrpc: '2.0', id, method: 'x' }));
  done.resolve();
  await until('all are answered', () => count === 2000);
  assert.deepEqual(
    answers().map((line) => JSON.parse(line).id),
    Array.from({ length: 2000 }, (_, id) => id),
  );
  assert.ok(most() <= 256, `${most()} in one turn`);
  assert.ok(written.length <= 64, `${written.length} writes`);
});

test('answers that wait for others of their tick leave before what is asked after them', async () => {
  const written: string[] = [];
  const peer = new RpcPeer({
    write: (text) => void written.push(text),
    onNotification: () => undefined,
    onRequest: async () => ({}),
    onJunk: assert.fail,
  });
  peer.line('{"jsonrpc":"2.0","id":"a","method":"x"}');
  await Promise.resolve().then(() => undefined);
  peer.notify('after', {});
  await until('both are written', () => written.join('').split('\n').length === 3);
  assert.match(written.join(''), /"id":"a".*\n.*"method":"after"/);
});

test('an answer that is to leave with what was noted of it is written before that leaves by itself', async () => {
  const order: string[] = [];
  const peer = new RpcPeer({
    write: () => void order.push('answer'),
    onNotification: () => undefined,
    async onRequest() {
      await Promise.resolve();
      // As the channel sends its notes, unless a write takes them along.
      process.nextTick(() => order.push('note'));
      return peer.atOnce({});
    },
    onJunk: assert.fail,
  });
  peer.line('{"jsonrpc":"2.0","id":"a","method":"x"}');
  await until('both have left', () => order.length === 2);
  assert.deepEqual(order, ['answer', 'note']);
});

test('an answer that is to leave with what was noted of it takes answers that wait along, in one write', async () => {
  const written: string[] = [];
  const peer = new RpcPeer({
    write: (text) => void written.push(text),
    onNotification: () => undefined,
    onRequest: async (method) => (method === 'noted' ? peer.atOnce({}) : {}),
    onJunk: assert.fail,
  });
  peer.line('{"jsonrpc":"2.0","id":"a","method":"x"}');
  peer.line('{"jsonrpc":"2.0","id":"b","method":"noted"}');
  await until('both have left', () => written.join('').includes('"b"'));
  assert.equal(written.length, 1);
  assert.match(written[0]!, /"id":"a".*\n.*"id":"b"/);
});

test('the size of a call is that of its JSON, however it came together', () => {
  const call = new ToolCall({
    kind: 'tool',
    phase: 'started',
    toolCallId: 'a',
    title: 'a',
    toolKind: 'other',
    status: 'pending',
  });
  const steps = [
    {},
    { rawInput: { a: [1, { b: 'é"\n' }], c: null } },
    { rawOutput: [1, 2, 3] },
    { content: [{ type: 'content', content: { type: 'text', text: 'shown' } }] },
    { title: 'other', rawInput: 'x' },
  ];
  for (const step of steps) {
    call.merge(step);
    const told = call.told({ phase: 'updated', status: 'running' });
    assert.equal(call.size(told).chars, JSON.stringify(told).length);
  }
});

/** The message is a program; `drained` waits until the output has gone. */
const program = agentSource(`
  if (method === 'session/cancel') { globalThis.isOver = true; return; }
  const drained = () => new Promise((r) => process.stdout.writableNeedDrain ? process.stdout.once('drain', r) : setImmediate(r));
  if (method !== 'session/prompt') return;
  const tell = (data) => update(params.sessionId, data);
  await (0, eval)('(async ({ tell, drained, say, ask, session }) => {' + text + '})')(
    { tell, drained, say, ask, session: params.sessionId });
  ${endTurn}`);

const fields = 'Object.fromEntries(Array.from({ length: 1000 }, (_, i) => ["k" + i, i]))';

test('short lines that tell a large call again are told each, a few in a turn of the event loop', async (t) => {
  const { connection } = await startForeign(t, program, { pace });
  let told = 0;
  const most = mostInATurn(t, () => told);
  const { result, tools } = await runTurn(
    connection,
    `tell({ sessionUpdate: 'tool_call', toolCallId: 'a', title: 'a', rawInput: ${fields} });
     for (let i = 0; i < 500; i++) tell({ sessionUpdate: 'tool_call_update', toolCallId: 'a', title: 'step ' + i });`,
    { onUpdate: () => void (told += 1) },
  );
  assert.deepEqual(result, { outcome: 'completed' });
  assert.deepEqual(
    tools.slice(1, -1).map(({ title }) => title),
    Array.from({ length: 500 }, (_, at) => `step ${at}`),
  );
  assert.ok(tools.every(({ input }) => Object.keys(input as object).length === 1000));
  assert.ok(most() <= 12, `${most()} in one turn`);
});

test('the calls that a turn leaves open are ended before its result, each whole, some in a turn of the event loop', async (t) => {
  const { connection } = await startForeign(t, program, { pace });
  let finished = 0;
  const most = mostInATurn(t, () => finished);
  const { result, tools } = await runTurn(
    connection,
    `for (let i = 0; i < 300; i++) { tell({ sessionUpdate: 'tool_call', toolCallId: 't' + i, title: 'a', rawInput: ${fields} }); await drained(); }`,
    { onUpdate: (update) => void (update.kind === 'tool' && update.phase === 'finished' && (finished += 1)) },
  );
  assert.deepEqual(result, { outcome: 'completed' });
  const ends = tools.filter(({ phase }) => phase === 'finished');
  assert.equal(ends.length, 300);
  assert.ok(
    ends.every(({ status, input }) => status === 'failed' && Object.keys(input as object).length === 1000),
  );
  assert.ok(most() <= 12, `${most()} in one turn`);
});

for (const count of [20, 40, 80]) {
  test(`a turn of ${count} large calls is told whole at the usual pace`, async (t) => {
    const { connection } = await startForeign(t, program);
    const { result, tools } = await inTime(
      'it is over',
      runTurn(
        connection,
        `for (let i = 0; i < ${count}; i++) {
           tell({ sessionUpdate: 'tool_call', toolCallId: 't' + i, title: 'read', rawInput: { text: 'i'.repeat(60_000) } });
           tell({ sessionUpdate: 'tool_call_update', toolCallId: 't' + i, content: [{ type: 'content', content: { type: 'text', text: 'o'.repeat(60_000) } }] });
           tell({ sessionUpdate: 'tool_call_update', toolCallId: 't' + i, status: 'completed' });
           await drained();
         }`,
      ),
    );
    assert.deepEqual(result, { outcome: 'completed' });
    assert.equal(tools.length, 3 * count);
    const last = tools.at(-1)!;
    assert.deepEqual([last.phase, last.status], ['finished', 'completed']);
    assert.deepEqual([last.input, last.output], [{ text: 'i'.repeat(60_000) }, 'o'.repeat(60_000)]);
  });
}

test('a harness that tells a large call again without end is cancelled like any other', async (t) => {
  const { connection } = await startForeign(t, program, {
    pace: { burst: 4 * 1024 * 1024, perSecond: 1024 * 1024 },
  });
  const abort = new AbortController();
  let told = 0;
  const turn = runTurn(
    connection,
    `tell({ sessionUpdate: 'tool_call', toolCallId: 'a', title: 'a', rawInput: ${fields} });
     for (let i = 0; i < 3000 && !globalThis.isOver; i++) { tell({ sessionUpdate: 'tool_call_update', toolCallId: 'a' }); await drained(); }`,
    { signal: abort.signal, onUpdate: () => void (told += 1) },
  );
  await until('it tells', () => told >= 5);
  abort.abort();
  assert.deepEqual((await inTime('it is over', turn)).result, { outcome: 'cancelled' });
});

test('what is told waits until what was told before is on record, and no more is told than that meanwhile', async (t) => {
  const { connection } = await startForeign(t, program, { pace });
  const updates: HarnessUpdate[] = [];
  const recorded: number[] = [];
  const result = await connection.prompt({
    runId: 'run-1',
    attempt: 1,
    conversationId: 'conversation-1',
    content: `for (let i = 0; i < 200; i++) { tell({ sessionUpdate: 'tool_call', toolCallId: 't' + i, title: 'a', status: 'completed', rawInput: ${fields} }); await drained(); }`,
    source: 'api',
    extras: null,
    resume: [],
    history: async () => [],
    signal: new AbortController().signal,
    onUpdate: (update) => void updates.push(update),
    onRecord: async () => undefined,
    onTold: () => undefined,
    onAcknowledge: async () => {
      const before = updates.length;
      for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
      recorded.push(updates.length - before);
    },
    onQuestion: () => assert.fail('no question is put'),
    ended: Promise.resolve(),
  });
  assert.deepEqual(result, { outcome: 'completed' });
  assert.equal(updates.length, 400);
  assert.ok(recorded.length >= 5 && recorded.filter((more) => more === 0).length >= 5, recorded.join());
});

test('a question whose id is longer than any harness makes them is refused, and its turn goes on', async (t) => {
  const { connection } = await startForeign(t, program);
  const { result, questions, text } = await runTurn(
    connection,
    `const put = (id) => new Promise((r) => {
       process.stdin.on('data', function look(d) { if (String(d).includes(id.slice(0, 20))) { process.stdin.off('data', look); r(); } });
       say({ id, method: 'session/request_permission', params: { sessionId: session, toolCall: {}, options: [] } });
     });
     await put('n'.repeat(201));
     await put('m'.repeat(200));
     tell({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'well' } });`,
  );
  assert.deepEqual([result, questions.length, text], [{ outcome: 'completed' }, 1, 'well']);
});

/** What each write to a socket of this process was given, from now on. */
function writes(t: TestContext): string[] {
  const written: string[] = [];
  const write = Socket.prototype.write;
  t.mock.method(Socket.prototype, 'write', function (this: Socket, ...given: Parameters<typeof write>) {
    written.push(String(given[0]));
    return write.apply(this, given);
  });
  return written;
}

test('the answer to a question and the note that it was given are one write: a kill leaves both to be done, or none', async (t) => {
  const { connection } = await startForeign(t, program, { pace });
  const written = writes(t);
  const { result } = await runTurn(
    connection,
    `await new Promise((r) => {
       process.stdin.on('data', function look(d) { if (String(d).includes('"q1"')) { process.stdin.off('data', look); r(); } });
       say({ id: 'q1', method: 'session/request_permission', params: { sessionId: session, toolCall: { toolCallId: 'a', title: 'a' }, options: [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }] } });
     });`,
    { onQuestion: async () => ({ kind: 'permission', optionId: 'yes' }) },
  );
  assert.deepEqual(result, { outcome: 'completed' });
  const answers = written.filter((text) => text.includes('"outcome":"selected"'));
  assert.equal(answers.length, 1);
  assert.match(answers[0]!, /"asked":\{\}/);
});

test('the note that a question was answered leaves with the end of its answer, also of one that is longer than a frame', async (t) => {
  const { connection } = await startForeign(t, program, { pace });
  const written = writes(t);
  const { result } = await runTurn(
    connection,
    `await new Promise((r) => {
       process.stdin.on('data', function look(d) { if (String(d).includes('the end')) { process.stdin.off('data', look); r(); } });
       say({ id: 'q1', method: 'elicitation/create', params: { sessionId: session, mode: 'form', message: 'a', requestedSchema: { type: 'object', properties: { a: { type: 'string' } } } } });
     });`,
    {
      onQuestion: async () => ({
        kind: 'input',
        action: 'accept',
        content: { a: `${'x'.repeat(200_000)}the end` },
        message: null,
      }),
    },
  );
  assert.deepEqual(result, { outcome: 'completed' });
  const parts = written.filter((text) => text.includes('xxxx'));
  assert.ok(parts.length > 1);
  assert.deepEqual(
    parts.map((text) => text.includes('"asked":{}')),
    parts.map((text) => text.includes('the end')),
  );
});
