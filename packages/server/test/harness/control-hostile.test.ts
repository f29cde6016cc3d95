import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { ByteLog as InsideByteLog } from '../../../harness/src/byte-log.ts';
import * as inside from '../../../harness/src/frames.ts';
import { ByteLog } from '../../src/harness/control/byte-log.ts';
import { Endpoint, type EndpointEvents } from '../../src/harness/control/endpoint.ts';
import * as host from '../../src/harness/control/frames.ts';
import { random } from '../support/kill-rounds.ts';
import { until } from '../support/until.ts';

const { frameKinds: kinds } = host;

interface World {
  endpoint: Endpoint;
  events: EndpointEvents;
  path: string;
  lines: [string, number][];
  broken: string[];
  faults: unknown[];
  dial(): Socket;
}

async function open(t: TestContext, beforeListening = async (_: World) => {}): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), 'bc-'));
  const path = join(folder, 'control.sock');
  const faults: unknown[] = [];
  const endpoint = await Endpoint.open(path, { onFault: (error) => void faults.push(error) });
  const lines: World['lines'] = [];
  const broken: string[] = [];
  const sockets: Socket[] = [];
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    endpoint.close();
    await rm(folder, { recursive: true });
  });
  const dial = () => {
    const socket = connect(path);
    socket.on('error', () => undefined);
    socket.resume();
    sockets.push(socket);
    return socket;
  };
  const events: EndpointEvents = {
    onLine: (line, end) => void lines.push([line, end]),
    onHello: () => endpoint.welcome(),
    onBroken: (why) => void broken.push(why),
  };
  const world = { endpoint, events, path, lines, broken, faults, dial };
  await beforeListening(world);
  endpoint.events = events;
  return world;
}

const closed = (socket: Socket) => new Promise((resolve) => socket.once('close', resolve));
const hello = (more: object = {}) =>
  host.jsonFrame(kinds.hello, 0, { version: 1, base: 0, received: 0, notes: [], ...more });
const lines = (text: string) => host.linesFrame(0, Buffer.from(text));

test('both sides of the channel have the same table of frames and the same measures', () => {
  const { FrameReader: _host, ...ours } = host;
  const { FrameReader: _inside, ...theirs } = inside;
  assert.deepEqual(JSON.parse(JSON.stringify(ours)), JSON.parse(JSON.stringify(theirs)));
  assert.ok(host.textFrame(kinds.log, 3, 'é').equals(inside.textFrame(kinds.log, 3, 'é')));
  // The code itself is the same on both sides, which may import nothing of each other.
  assert.equal(host.FrameReader.toString(), inside.FrameReader.toString());
  assert.equal(ByteLog.toString(), InsideByteLog.toString());
  for (const [name, value] of Object.entries(ours)) {
    if (typeof value === 'function') assert.equal(`${value}`, `${theirs[name as keyof typeof theirs]}`, name);
  }
});

test('frames are the same however their bytes are cut, and one that came in pieces keeps no memory but its own', () => {
  const payloads = [0, 1, 5000, 0, 60_000, 65_536].map((size) => Buffer.alloc(size, size % 251));
  const bytes = Buffer.concat(
    payloads.map((payload, at) => {
      const frame = host.newFrame(kinds.data, at, payload.length);
      payload.copy(frame, host.headerBytes);
      return frame;
    }),
  );
  for (const size of [1, 7, 4096, 65_536, bytes.length]) {
    const got: Buffer[] = [];
    const reader = new host.FrameReader({
      maxBytes: host.maxPayloadBytes,
      onFrame(kind, stream, payload) {
        assert.deepEqual([kind, stream], [kinds.data, got.length]);
        got.push(payload);
      },
      onTooLong: assert.fail,
    });
    for (let at = 0; at < bytes.length; at += size) reader.push(Buffer.from(bytes.subarray(at, at + size)));
    assert.equal(got.length, payloads.length);
    got.forEach((payload, at) => assert.ok(payload.equals(payloads[at]!), `${size}: ${at}`));
    if (size < bytes.length) assert.equal(got.at(-1)!.buffer.byteLength, 65_536);
  }
});

/** Resolves when the endpoint has read what was sent: a second hello is refused only then. */
async function heard({ dial }: World): Promise<void> {
  const second = dial();
  second.write(hello());
  await closed(second);
}

test('a launcher that dials before anybody listens is heard all the same', async (t) => {
  const { lines: got } = await open(t, async (world) => {
    const socket = world.dial();
    socket.write(hello());
    socket.once('data', () => socket.write(lines('{}\n')));
    await heard(world);
  });
  await until('it was let in, and its line has come', () => got.length === 1);
});

test('one that has gone again before anybody listens is heard when it dials again', async (t) => {
  const { lines: got, dial } = await open(t, async (world) => {
    const socket = world.dial();
    socket.write(hello());
    await heard(world);
    socket.destroy();
    await until('another one may come', async () => {
      const next = world.dial();
      next.write(hello({ version: 2 }));
      await closed(next);
      return true;
    });
  });
  const socket = dial();
  socket.write(Buffer.concat([hello(), lines('{}\n')]));
  await until('its line has come', () => got.length === 1);
});

test('what one sends while the service lets go of it is no fault of it: the next process of the service gets it', async (t) => {
  const { endpoint, broken, lines: got, dial } = await open(t);
  const socket = dial();
  socket.write(hello());
  await once(socket, 'data');
  // So the endpoint stays connected for a while after it was closed.
  socket.pause();
  endpoint.write(`${'x'.repeat(1024 * 1024)}\n`);
  endpoint.close();
  await new Promise((resolve) => socket.write(lines('{}\n'), resolve));
  // It is in the kernel by now, and read in the next turn of the event loop.
  for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
  socket.resume();
  await closed(socket);
  assert.deepEqual([broken, got], [[], []]);
});

test('one that breaks the protocol before anybody listens is told of', async (t) => {
  const { broken } = await open(t, async (world) => {
    const socket = world.dial();
    socket.write(Buffer.concat([hello(), lines('{}\n')]));
    await closed(socket);
  });
  assert.deepEqual(broken, ['It sent a frame out of turn.']);
});

test('lines arrive whole and in order however the bytes are cut, each with its position', async (t) => {
  const { lines: got, dial } = await open(t);
  const socket = dial();
  const whole = Buffer.concat([hello(), lines('{"a":1}\n{"b"'), lines(':"é"}\n'), lines('\n{"c":3}\n')]);
  for (const byte of whole) socket.write(Buffer.from([byte]));
  await until('all lines have come', () => got.length === 4);
  assert.deepEqual(got, [
    ['{"a":1}', 8],
    ['{"b":"é"}', 19],
    // A blank one has a position like any other, or it would never be acknowledged.
    ['', 20],
    ['{"c":3}', 28],
  ]);
});

test('a launcher that dials again goes on where its lines were whole', async (t) => {
  const { endpoint, lines: got, dial } = await open(t);
  const first = dial();
  first.write(Buffer.concat([hello(), lines('one\ntwo\nthr')]));
  await until('two lines have come', () => got.length === 2);
  first.destroy();
  await endpoint.drained();
  // From position 8 on, as it was told to.
  const second = dial();
  second.write(hello());
  const [welcome] = (await once(second, 'data')) as [Buffer];
  assert.match(welcome.toString('latin1'), /\{"from":8\}/);
  second.write(lines('three\n'));
  await until('the third has come', () => got.length === 3);
  assert.deepEqual(got.at(-1), ['three', 14]);
});

test('a launcher that has as many notes as it may tell of takes what changes one, and no further one', async (t) => {
  const { endpoint, events, dial } = await open(t);
  const heard: number[] = [];
  events.onHello = (notes) => {
    heard.push(...[...notes.values()].map((value) => String(value).length));
    endpoint.welcome();
  };
  const socket = dial();
  let got = '';
  socket.on('data', (bytes: Buffer) => (got += bytes.toString('latin1')));
  const valueOf = (n: number) => 'x'.repeat([9_900, 10_100][n] ?? 10);
  socket.write(hello({ notes: Array.from({ length: 1000 }, (_, n) => [`known:${n}`, valueOf(n)]) }));
  await until('it is welcome', () => got !== '');
  assert.deepEqual(heard, [9_900, ...Array(998).fill(10)]);
  endpoint.note('known:7', 'changed');
  endpoint.note('further', 'one too many');
  endpoint.write('then\n');
  await until('all has come', () => got.includes('then'));
  assert.deepEqual([got.includes('changed'), got.includes('one too many')], [true, false]);
  endpoint.note('known:8', null);
  endpoint.note('another', 'in its place');
  await until('there is room again', () => got.includes('in its place'));
});

test('what a launcher told of that has gone again takes no room from the notes of the next one, nor what it was told to forget', async (t) => {
  const { endpoint, dial } = await open(t);
  const notesOf = (n: number) => Array.from({ length: 990 }, (_, at) => [`${n}:${at}`, 'x']);
  for (let n = 0; n < 3; n += 1) {
    const socket = dial();
    let got = '';
    socket.on('data', (bytes: Buffer) => (got += bytes.toString('latin1')));
    socket.write(hello({ notes: notesOf(n) }));
    await until('it is welcome', () => got !== '');
    for (let at = 0; at < 10; at += 1) endpoint.note(`new:${n}:${at}`, 'y');
    await until('all are taken', () => got.includes(`new:${n}:9`));
    socket.destroy();
    await endpoint.drained();
  }
  for (let at = 0; at < 10; at += 1) endpoint.note(`2:${at}`, null);
  const socket = dial();
  let got = '';
  socket.on('data', (bytes: Buffer) => (got += bytes.toString('latin1')));
  socket.write(hello({ notes: notesOf(2) }));
  await until('it is welcome', () => got !== '');
  for (let at = 0; at < 20; at += 1) endpoint.note(`last:${at}`, 'z');
  await until('all are taken', () => got.includes('last:19'));
});

test('what is noted while no launcher is there is kept for the next one, of each thing the last, and comes with what was written', async (t) => {
  const { endpoint, dial } = await open(t);
  endpoint.note('session:a', { asked: 'a question' });
  endpoint.note('session:b', { asked: 'another' });
  endpoint.write('the prompt\n');
  await new Promise(setImmediate);
  endpoint.note('session:a', { asked: 'nothing' });
  endpoint.write('the answer\n');
  await new Promise(setImmediate);
  const socket = dial();
  let got = '';
  socket.on('data', (bytes: Buffer) => (got += bytes.toString('latin1')));
  socket.write(hello());
  await until('all has come', () => got.includes('the answer'));
  const at = ['the prompt', '"nothing"', '"another"', 'the answer'].map((text) => got.indexOf(text));
  assert.ok(!at.includes(-1), got);
  assert.deepEqual(
    at,
    [...at].sort((a, b) => a - b),
  );
  assert.ok(!got.includes('a question'));
});

test('only one launcher is served: a second one is closed at once, and takes the place of the first when that is gone', async (t) => {
  const { lines: got, dial, endpoint } = await open(t);
  const first = dial();
  first.write(hello());
  await once(first, 'data');
  const second = dial();
  second.write(Buffer.concat([hello(), lines('from the second\n')]));
  await closed(second);
  first.write(lines('from the first\n'));
  await until('the line has come', () => got.length === 1);
  assert.equal(got[0]![0], 'from the first');
  first.destroy();
  await endpoint.drained();
  const third = dial();
  third.write(hello());
  await once(third, 'data');
  third.write(lines('from the third\n'));
  await until('its line has come', () => got.length === 2);
});

const bad: Record<string, Buffer[]> = {
  'a frame longer than any may be': [Buffer.from([0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 0])],
  'lines longer than a frame may be': [host.newFrame(kinds.lines, 0, host.maxPayloadBytes + 1)],
  'lines without a position': [host.newFrame(kinds.lines, 0, 3)],
  'an acknowledgement of another length': [host.newFrame(kinds.ack, 0, 7)],
  'an unknown kind': [host.newFrame(200 as 3, 0, 0)],
  'a kind that only the host sends': [host.newFrame(kinds.exec, 1, 2)],
  'data of a stream that never was': [host.dataFrame(9, 1, Buffer.from('x'))],
  'a second hello': [hello()],
  'a line without an end': Array.from({ length: 130 }, () => lines('x'.repeat(host.maxLinesBytes))),
};

for (const [what, frames] of Object.entries(bad)) {
  test(`${what} ends the channel`, async (t) => {
    const { broken, dial } = await open(t);
    const socket = dial();
    socket.write(hello());
    await once(socket, 'data');
    for (const frame of frames) socket.write(frame);
    await closed(socket);
    assert.ok(broken.length <= 1);
  });
}

test('what is no hello is closed, whatever it claims', async (t) => {
  const { broken, dial } = await open(t);
  const claims: object[] = [
    { version: 2 },
    { base: -1 },
    { base: 2 ** 50 },
    { base: 2 ** 48 - 1 },
    { received: 2 ** 48 - 1 },
    { received: 1.5 },
    { notes: {} },
    { notes: [['a']].concat(Array.from({ length: 1001 }, () => ['b'])) },
  ];
  for (const claim of claims) {
    const socket = dial();
    socket.write(hello(claim));
    await closed(socket);
  }
  const socket = dial();
  socket.write('GET / HTTP/1.1\r\n\r\n');
  await closed(socket);
  assert.deepEqual(broken, []);
});

test('a launcher whose first position is the highest of all does not lead beyond what a frame can hold', async (t) => {
  const { endpoint, lines: got, faults, dial } = await open(t);
  const socket = dial();
  socket.write(hello({ base: 2 ** 47 - 1, received: 2 ** 47 - 1 }));
  await once(socket, 'data');
  socket.write(lines('one\ntwo\n'));
  await until('both lines have come', () => got.length === 2);
  endpoint.ack(got[1]![1]);
  endpoint.write('three\n');
  assert.deepEqual(faults, []);
});

test('a note that is nested too deep to be written is left out', async (t) => {
  const { endpoint, events, faults, dial } = await open(t);
  const greeted: unknown[] = [];
  events.onHello = (notes) => {
    greeted.push([...notes]);
    endpoint.welcome();
  };
  const deep = `${'['.repeat(90_000)}${']'.repeat(90_000)}`;
  const text = `{"version":1,"base":0,"received":0,"notes":[["deep",${deep}],["flat",1]]}`;
  const socket = dial();
  socket.write(host.textFrame(kinds.hello, 0, text));
  await once(socket, 'data');
  assert.deepEqual(greeted, [[['flat', 1]]]);
  assert.deepEqual(faults, []);
});

test('what makes the host throw ends its channel and is told of, and the host goes on', async (t) => {
  const { events, broken, faults, dial } = await open(t);
  events.onLine = (line) => {
    throw new Error(`cannot take ${line}`);
  };
  const socket = dial();
  socket.write(Buffer.concat([hello(), lines('one\n')]));
  await closed(socket);
  assert.deepEqual(broken, ['It sent what the service cannot handle.']);
  assert.deepEqual(faults.map(String), ['Error: cannot take one']);

  const other = await open(t);
  other.events.onHello = () => {
    throw new Error('cannot greet');
  };
  const early = other.dial();
  early.write(hello());
  await closed(early);
  assert.deepEqual(other.faults.map(String), ['Error: cannot greet']);
});

test('a launcher that goes away between its hello and the welcome is let in when it comes back', async (t) => {
  const { endpoint, events, lines: got, dial } = await open(t);
  let hellos = 0;
  events.onHello = () => void (hellos += 1);
  const first = dial();
  first.write(hello({ base: 10, received: 5 }));
  await until('it has said hello', () => hellos === 1);
  first.destroy();
  await endpoint.drained();
  endpoint.welcome();
  const second = dial();
  second.write(hello({ base: 10, received: 5 }));
  const [welcome] = (await once(second, 'data')) as [Buffer];
  assert.match(welcome.toString('latin1'), /\{"from":10\}/);
  second.write(lines('one\n'));
  await until('its line has come', () => got.length === 1);
  assert.deepEqual(got[0], ['one', 14]);
});

test('a command gets no more output than was asked for, and answers for streams of the past are forgiven', async (t) => {
  const { endpoint, broken, dial } = await open(t);
  const socket = dial();
  socket.write(hello());
  await once(socket, 'data');
  const exec = endpoint.commands.exec({ command: ['x'] });
  socket.write(host.newFrame(kinds.started, 1, 0));
  const process = await exec;
  socket.write(host.jsonFrame(kinds.exit, 1, { code: 70_000, signal: 'RM -RF' }));
  assert.deepEqual(await process.exited, { code: 70_000 & 0xff, signal: null });
  socket.write(host.dataFrame(1, 1, Buffer.from('late')));
  const second = endpoint.commands.exec({ command: ['x'] });
  socket.write(host.newFrame(kinds.started, 2, 0));
  const running = await second;
  assert.deepEqual(broken, []);
  for (let bytes = 0; bytes <= host.windowBytes; bytes += 60_000) {
    socket.write(host.dataFrame(2, 1, Buffer.alloc(60_000)));
  }
  await closed(socket);
  assert.equal(broken.length, 1);
  assert.deepEqual(await running.exited, { code: null, signal: null });
});

test('a command whose channel ends may have begun, one after the end has not', async (t) => {
  const { endpoint, dial } = await open(t);
  const socket = dial();
  socket.write(hello());
  await once(socket, 'data');
  const told = endpoint.commands.exec({ command: ['x'] });
  const ended = assert.rejects(told, { code: 'gone', isUntold: false });
  await once(socket, 'data');
  socket.destroy();
  await ended;
  const late = endpoint.commands.exec({ command: ['x'] });
  await assert.rejects(late, { code: 'gone', isUntold: true });
});

test('the log of a sandbox is bounded in lines and in what it takes a second', async (t) => {
  const { endpoint, dial } = await open(t);
  const socket = dial();
  socket.write(hello());
  await once(socket, 'data');
  for (let n = 0; n < 3000; n += 1) socket.write(host.textFrame(kinds.log, 0, `${n} ${'x'.repeat(3000)}`));
  socket.write(lines('done\n'));
  await until('all was read', () => endpoint.position > 0);
  const kept = endpoint.log.after(0);
  assert.ok(kept.length > 50 && kept.length <= 1000);
  assert.ok(kept.reduce((chars, line) => chars + line.text.length, 0) < 1024 * 1024);
});

test('random frames never throw on the host, and leave the next launcher a working channel', async (t) => {
  const seed = Math.floor(Math.random() * 1e9);
  t.diagnostic(`seed ${seed}`);
  const draw = random(seed);
  const int = (max: number) => Math.floor(draw() * max);
  for (let round = 0; round < 60; round += 1) {
    const { endpoint, lines: got, broken, dial } = await open(t);
    const socket = dial();
    socket.write(hello());
    await once(socket, 'data');
    const exec = endpoint.commands.exec({ command: ['x'] }).catch(() => null);
    for (let n = 0; n < 40 && !socket.destroyed; n += 1) {
      const payload = Buffer.from(Array.from({ length: int(40) }, () => int(256)));
      const frame = Buffer.concat([host.newFrame(int(22) as 3, int(3), 0), payload]);
      frame.writeUInt32BE(draw() < 0.95 ? payload.length : int(2 ** 32), 0);
      socket.write(frame);
    }
    socket.end();
    await closed(socket);
    await endpoint.drained();
    await exec;
    if (broken.length > 0) continue;
    got.length = 0;
    const next = dial();
    next.write(hello());
    await once(next, 'data');
    next.write(lines('{"still":"here"}\n'));
    await until('the line has come', () => got.length === 1);
  }
});
