import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { Pace } from '../../src/domain/bucket.ts';
import { limits } from '../../src/domain/limits.ts';
import type { HarnessUpdate, TurnRequest } from '../../src/domain/ports/harness.ts';
import { Endpoint } from '../../src/harness/control/endpoint.ts';
import {
  dataFrame,
  FrameReader,
  frameKinds as kinds,
  jsonFrame,
  linesFrame,
  maxLinesBytes,
  newFrame,
  positionFrame,
  textFrame,
} from '../../src/harness/control/frames.ts';
import { ReadingPace } from '../../src/harness/control/reading-pace.ts';
import { harnessLinks } from '../../src/harness/link.ts';
import { agentSource, endTurn, foreignPlaces, startForeign } from '../support/foreign-agent.ts';
import { runTurn } from '../support/harness-fixture.ts';
import { startLauncher } from '../support/local-harness.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

/** So slow that nothing more is read in a test once the first is used up. */
const still = (burst: number): Pace => ({ burst, perSecond: 1 });

async function open(t: TestContext, pace?: Pace) {
  const folder = await mkdtemp(join(tmpdir(), 'bp-'));
  const path = join(folder, 'control.sock');
  const endpoint = await Endpoint.open(path, {
    onFault: (error) => assert.fail(String(error)),
    ...(pace && { pace }),
  });
  const sockets: Socket[] = [];
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    endpoint.close();
    await rm(folder, { recursive: true });
  });
  const got: string[] = [];
  const broken: string[] = [];
  endpoint.events = {
    onLine: (line) => void got.push(line),
    onHello: () => endpoint.welcome(),
    onBroken: (why) => void broken.push(why),
  };
  const dial = () => {
    const socket = connect(path);
    socket.on('error', () => undefined);
    sockets.push(socket);
    return socket;
  };
  /** One that was let in. */
  const launcher = async () => {
    const socket = dial();
    socket.write(hello());
    await once(socket, 'data');
    socket.resume();
    return socket;
  };
  return { endpoint, got, broken, dial, launcher };
}

const hello = (notes: unknown = []) => jsonFrame(kinds.hello, 0, { version: 1, base: 0, received: 0, notes });
const closed = (socket: Socket) => new Promise((resolve) => socket.once('close', resolve));
function lines(text: string): Buffer {
  const bytes = Buffer.from(text);
  const frames: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += maxLinesBytes) {
    frames.push(linesFrame(0, bytes.subarray(at, at + maxLinesBytes)));
  }
  return Buffer.concat(frames);
}
const turns = async (count: number) => {
  for (let turn = 0; turn < count; turn += 1) await new Promise(setImmediate);
};

test('a line of as many names and values as it may have is taken, one of more ends the channel with the reason', async (t) => {
  const { got, broken, launcher } = await open(t);
  const socket = await launcher();
  // The list itself is a value too.
  const most = JSON.stringify(Array(limits.lineValues - 1).fill(''));
  socket.write(lines(`${most}\n`));
  await until('it was taken', () => got.length === 1);
  socket.write(lines(`${most.replace('[', '["",')}\n`));
  await closed(socket);
  assert.deepEqual(broken, ['The harness wrote a line with more than 50000 names and values.']);
  assert.equal(got.length, 1);
});

test('of numbers and words a line may have eight times as many', async (t) => {
  const { got, broken, launcher } = await open(t);
  const socket = await launcher();
  socket.write(lines(`[${'1,null,'.repeat(4 * limits.lineValues - 8)}1]\n`));
  await until('it was taken', () => got.length === 1);
  socket.write(lines(`[${'1,null,'.repeat(4 * limits.lineValues)}1]\n`));
  await closed(socket);
  assert.deepEqual(broken, ['The harness wrote a line with more than 50000 names and values.']);
});

test('a text of megabytes is one value, whatever is in it', async (t) => {
  const { got, launcher } = await open(t);
  const socket = await launcher();
  const line = JSON.stringify({ text: '{},[]"\\:'.repeat(200_000) });
  socket.write(lines(`${line}\n`));
  await until('it was taken', () => got.length === 1);
  assert.equal(got[0], line);
});

test('a greeting of more names and values than all notes together may hold is closed', async (t) => {
  const { broken, dial, launcher } = await open(t);
  const socket = dial();
  socket.write(
    textFrame(
      kinds.hello,
      0,
      `{"version":1,"base":0,"received":0,"notes":[["a",[${'{},'.repeat(100_000)}1]]]}`,
    ),
  );
  await closed(socket);
  assert.deepEqual(broken, []);
  await launcher();
});

/** What is used up by one `unit` each; so many fit, and a few more than that do not. */
const paced: [string, (at: number) => Buffer, number][] = [
  ['lines by their characters', () => lines(`"${'x'.repeat(10_000)}"\n`), 10_000],
  ['short lines by the work that any line makes', () => lines('{}\n'), 512],
  ['lines by the names and values in them', () => lines(`[${'[],'.repeat(300)}1]\n`), 17_000],
  ['pieces of lines by the work that any frame makes', () => linesFrame(0, Buffer.from('x')), 64],
  ['lines of the log', () => textFrame(kinds.log, 0, 'x'), 512],
  ['frames that say nothing', () => positionFrame(0), 64],
  ['output of commands that nobody started', () => dataFrame(1, 1, Buffer.alloc(10_000)), 10_000],
];
for (const [what, frame, unit] of paced) {
  test(`beyond the pace a sandbox is not read any more: ${what}`, async (t) => {
    const { endpoint, broken, launcher } = await open(t, still(unit * 40));
    const socket = await launcher();
    // Stream 1 is of a command that has ended.
    const exec = endpoint.commands.exec({ command: ['x'] }).catch(() => undefined);
    socket.write(jsonFrame(kinds.refused, 1, { code: 'failed', message: 'no' }));
    await exec;
    socket.write(Buffer.concat(Array.from({ length: 20 }, (_, at) => frame(at))));
    // It answers what comes after them.
    const second = endpoint.commands.exec({ command: ['x'] }).catch(() => undefined);
    socket.write(jsonFrame(kinds.refused, 2, { code: 'failed', message: 'no' }));
    await second;
    assert.equal(endpoint.isHeldBack, false);
    for (let at = 0; at < 30; at += 1) socket.write(frame(at));
    await until('it is held back', () => endpoint.isHeldBack);
    const third = endpoint.commands.exec({ command: ['x'] });
    let isAnswered = false;
    third.catch(() => undefined).finally(() => (isAnswered = true));
    // More than the socket holds is not taken from its writer.
    socket.write(Buffer.alloc(4 * 1024 * 1024, positionFrame(0)));
    socket.write(jsonFrame(kinds.refused, 3, { code: 'failed', message: 'no' }));
    await turns(50);
    assert.ok(!isAnswered && socket.writableLength > 0);
    assert.deepEqual(broken, []);
  });
}

test('output of a command has its own pace: lines do not wait for it', async (t) => {
  const { endpoint, got, launcher } = await open(t, still(100_000));
  const socket = await launcher();
  const exec = endpoint.commands.exec({ command: ['x'] });
  socket.write(newFrame(kinds.started, 1, 0));
  const { stdout } = await exec;
  let bytes = 0;
  stdout.on('data', (chunk: Buffer) => (bytes += chunk.length));
  for (let at = 0; at < 20; at += 1) {
    socket.write(dataFrame(1, 1, Buffer.alloc(50_000)));
    await until('it was read', () => bytes === (at + 1) * 50_000);
  }
  socket.write(lines('{}\n'));
  await until('the line has come', () => got.length === 1);
  assert.equal(endpoint.isHeldBack, false);
});

test('output that comes by single bytes while nobody reads is held in few pieces, and read whole and in order', async (t) => {
  const { endpoint, broken, launcher } = await open(t);
  const socket = await launcher();
  const exec = endpoint.commands.exec({ command: ['x'] });
  socket.write(newFrame(kinds.started, 1, 0));
  const { stdout, stderr, exited } = await exec;
  const sent = Buffer.from(Array.from({ length: 50_000 }, (_, index) => index % 251));
  for (const byte of sent) socket.write(dataFrame(1, 1, Buffer.from([byte])));
  socket.write(dataFrame(1, 1, Buffer.alloc(20_000, 1)));
  socket.write(dataFrame(1, 1, Buffer.from('end')));
  socket.write(dataFrame(1, 2, Buffer.from('mark')));
  await once(stderr, 'data');
  const pieces: Buffer[] = [];
  stdout.on('data', (chunk: Buffer) => void pieces.push(chunk));
  await until('what is there was read', () => Buffer.concat(pieces).length === 70_003);
  assert.ok(pieces.length <= 10, `${pieces.length} pieces`);
  assert.ok(Buffer.concat(pieces).equals(Buffer.concat([sent, Buffer.alloc(20_000, 1), Buffer.from('end')])));
  for (const byte of Buffer.from('more')) socket.write(dataFrame(1, 1, Buffer.from([byte])));
  stdout.pause();
  socket.write(dataFrame(1, 1, Buffer.from('last')));
  socket.write(jsonFrame(kinds.exit, 1, { code: 0, signal: null }));
  await exited;
  stdout.resume();
  await once(stdout, 'end');
  assert.equal(Buffer.concat(pieces).subarray(70_003).toString(), 'morelast');
  assert.deepEqual(broken, []);
});

test('as much as the limit says is read at once, but for a turn of all others after each mebibyte', async (t) => {
  const pace = new ReadingPace(limits.controlReading);
  const calls: string[] = [];
  const socket = {
    destroyed: false,
    pause: () => calls.push('pause'),
    resume: () => calls.push('resume'),
  } as unknown as Socket;
  t.after(() => pace.forget(socket));
  for (let mebibytes = 0; mebibytes < 8; mebibytes += 1) {
    pace.frame(1024 * 1024 - 64);
    pace.hold(socket);
    assert.deepEqual(calls.splice(0), ['pause']);
    await turns(2);
    assert.deepEqual(calls.splice(0), ['resume']);
  }
  // Eight seconds' worth.
  pace.frame(64 * 1024 * 1024);
  pace.hold(socket);
  await turns(2);
  assert.deepEqual([calls, pace.isHolding], [['pause'], true]);
});

/** 2,000 lines are under way, and the first of them are taken. */
async function held(t: TestContext) {
  const world = await open(t, still(512 * 100));
  const socket = await world.launcher();
  const all = Array.from({ length: 2000 }, (_, at) => `{"line":${at}}`);
  // In pieces, as they are written: what came in one is read in one.
  for (let at = 0; at < all.length; at += 100) {
    socket.write(lines(`${all.slice(at, at + 100).join('\n')}\n`));
    await turns(1);
  }
  await until('it is held back', () => world.endpoint.isHeldBack);
  return { ...world, socket, all };
}

test('what is said to a sandbox that is held back arrives', async (t) => {
  const { endpoint, socket } = await held(t);
  const frames: number[] = [];
  const reader = new FrameReader({
    maxBytes: 2 ** 20,
    onFrame: (kind) => void frames.push(kind),
    onTooLong: assert.fail,
  });
  socket.on('data', (chunk) => reader.push(chunk));
  endpoint.write('{}\n');
  endpoint.ack(5);
  endpoint.note('a', 1);
  endpoint.end();
  await until('all of it has come', () => frames.length === 4);
  assert.deepEqual(frames, [kinds.lines, kinds.ack, kinds.note, kinds.end]);
});

test('when its sandbox has ended, all that it sent is read, each line once', async (t) => {
  const { endpoint, got, socket, all } = await held(t);
  assert.ok(got.length < all.length);
  socket.end();
  await endpoint.drained();
  assert.deepEqual(got, all);
});

test('one that is held back can be let go of', async (t) => {
  const { endpoint, broken, socket } = await held(t);
  endpoint.close();
  await closed(socket);
  await until('nothing of it is held', () => !endpoint.isHeldBack);
  assert.deepEqual(broken, []);
});

test('one that is held back is read at once when somebody waits for it, and held back again when that is over', async (t) => {
  const { endpoint, got, launcher } = await open(t, still(10_000));
  const socket = await launcher();
  const line = `"${'x'.repeat(20_000)}"\n`;
  socket.write(lines(line));
  await until('it is held back', () => endpoint.isHeldBack);
  socket.write(lines(line.repeat(200)));
  endpoint.isHurried = true;
  await until('all was read', () => got.length === 201);
  endpoint.isHurried = false;
  socket.write(lines(line));
  await until('it is held back again', () => endpoint.isHeldBack);
});

test('one that is held back is read on when its time has come, and nothing is lost', async (t) => {
  const { got, launcher } = await open(t, { burst: 512, perSecond: 1024 * 1024 });
  const socket = await launcher();
  const all = Array.from({ length: 200 }, (_, at) => `{"line":${at}}`);
  for (const line of all) {
    socket.write(lines(`${line}\n`));
    await turns(1);
  }
  await until('all lines have come', () => got.length === all.length);
  assert.deepEqual(got, all);
});

test('greetings are read at the same pace, one dial after the other', async (t) => {
  const { endpoint, dial } = await open(t, still(300_000));
  const wrong = jsonFrame(kinds.hello, 0, { version: 2, notes: 'x'.repeat(200_000) });
  for (let at = 0; at < 2; at += 1) {
    const socket = dial();
    socket.write(wrong);
    await closed(socket);
  }
  dial().write(wrong);
  await until('the third one waits', () => endpoint.isHeldBack);
});

/** It tells numbers without end, until it is cancelled. */
const counting = agentSource(`
  if (method === 'session/cancel') { globalThis.isOver = true; return; }
  if (method !== 'session/prompt') return;
  const drained = () => new Promise((r) => process.stdout.writableNeedDrain ? process.stdout.once('drain', r) : setImmediate(r));
  for (let at = 0; at < Number(text) && !globalThis.isOver; at += 1) {
    update(params.sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: at + ' ' } });
    if (at % 100 === 0) await drained();
  }
  ${endTurn}`);

const numbers = (count: number) => Array.from({ length: count }, (_, at) => `${at} `).join('');

test('a turn that tells faster than the pace is told whole', async (t) => {
  const { connection } = await startForeign(t, counting, {
    pace: { burst: 100_000, perSecond: 4 * 1024 * 1024 },
  });
  const { result, text } = await runTurn(connection, '3000');
  assert.deepEqual(result, { outcome: 'completed' });
  assert.equal(text, numbers(3000));
});

test('a harness that is held back is cancelled like any other', async (t) => {
  const { connection } = await startForeign(t, counting, {
    pace: still(300_000),
  });
  const abort = new AbortController();
  let updates = 0;
  const { result } = await runTurn(connection, '1000000', {
    signal: abort.signal,
    onUpdate: () => {
      if (++updates === 500) abort.abort();
    },
  });
  assert.deepEqual(result, { outcome: 'cancelled' });
});

test('a sandbox that is held back ends when it is killed, and its turn is told so', async (t) => {
  const { connection, sandbox } = await startForeign(t, counting, { pace: still(100_000) });
  let updates = 0;
  const turn = runTurn(connection, '1000000', { onUpdate: () => void (updates += 1) });
  await until('it tells', () => updates > 0);
  await sandbox.kill();
  const { result } = await turn;
  assert.ok(result.outcome === 'failed' && result.code === 'harness_exit', JSON.stringify(result));
});

test('after a restart of the service the rest of a turn that was held back arrives once', async (t) => {
  const { places, env } = await foreignPlaces(t, counting);
  const links = (pace?: Pace) =>
    harnessLinks({ log: silentLog, workspace: places.workspace, ...(pace && { pace }) })({
      socketPath: places.controlSocket,
      sandboxId: 'local',
    });
  const before = await links(still(100_000));
  const sandbox = await startLauncher(places, env);
  t.after(() => sandbox.kill());
  const connection = await before.connect(sandbox, { initializeTimeoutMs: 20_000 });
  const texts: string[] = [];
  let told = 0;
  const turn = {
    runId: 'run-1',
    attempt: 1,
    conversationId: 'conversation-1',
    onUpdate: (update: HarnessUpdate) => void (update.kind === 'text' && texts.push(update.text)),
    onTold: (end: number) => void (told = end),
    onQuestion: () => assert.fail('no question is put'),
    onRecord: async () => undefined,
    onAcknowledge: async () => undefined,
    ended: Promise.resolve(),
    signal: new AbortController().signal,
  } satisfies Partial<TurnRequest>;
  const prompt = { content: '5000', source: 'api', extras: null, history: async () => [], resume: [] };
  void connection.prompt({ ...turn, ...prompt });
  await until('it tells', () => texts.length > 0);
  before.leave();
  assert.ok(texts.length < 5000);

  const next = await links();
  t.after(() => next.leave());
  const adopted = await next.adopt(sandbox, { timeoutMs: 20_000 });
  assert.deepEqual(
    adopted.unfinished.map(({ runId }) => runId),
    ['run-1'],
  );
  const resumed = adopted.resume({ ...turn, told, tools: [], onAskedBefore: () => null });
  adopted.begin(new Set());
  assert.deepEqual(await resumed, { outcome: 'completed' });
  assert.equal(texts.join(''), numbers(5000));
});
