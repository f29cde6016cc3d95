import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { WebSocket } from 'ws';
import type { SandboxProcessExit } from '../../src/domain/ports/sandbox-control.ts';
import { Connection } from '../../src/edges/terminal/connection.ts';
import { Terminal } from '../../src/services/terminal.ts';
import { until } from '../support/until.ts';

/** A client that reads nothing until it is told to. */
class LazySocket extends EventEmitter {
  bufferedAmount = 0;
  /** Bytes of output, and the kinds of what is told beside it, in the order in which they were read. */
  readonly got: (number | string)[] = [];
  #unread: { data: Buffer | string; bytes: number; sent: () => void }[] = [];

  send(data: Buffer | string, sent: () => void): void {
    const bytes = Buffer.byteLength(data);
    this.bufferedAmount += bytes;
    this.#unread.push({ data, bytes, sent });
  }

  read(): void {
    for (const { data, bytes, sent } of this.#unread.splice(0)) {
      this.bufferedAmount -= bytes;
      this.got.push(typeof data === 'string' ? JSON.parse(data).type : bytes);
      sent();
    }
  }

  get outputBytes(): number {
    return this.got.reduce<number>((sum, one) => sum + (typeof one === 'number' ? one : 0), 0);
  }

  close(): void {}
}

function openTerminal() {
  const stdout = new PassThrough();
  const exit = Promise.withResolvers<SandboxProcessExit>();
  const at = { id: 'terminal', agentId: 'agent', keyId: 'key', graceMs: 60_000 };
  const terminal = new Terminal(at, {
    stdin: new PassThrough(),
    stdout,
    stderr: new PassThrough(),
    exited: exit.promise,
    resize: () => undefined,
    kill: () => undefined,
  });
  const connect = async (socket: LazySocket, after = 0) => {
    const connection = new Connection(socket as unknown as WebSocket, terminal, after);
    // What it missed comes before what the terminal writes in a later turn.
    await nextTurn();
    return connection;
  };
  return { terminal, stdout, exit, connect };
}

const block = Buffer.alloc(64 * 1024);

/** Writes until the terminal is held up; how much that was. */
async function fill(stdout: PassThrough): Promise<number> {
  let bytes = 0;
  while (!stdout.isPaused()) {
    const passed = once(stdout, 'data');
    stdout.write(block);
    await passed;
    bytes += block.length;
  }
  return bytes;
}

test('a terminal waits for a client that does not read, and goes on when it reads or has gone', async (t) => {
  const { terminal, stdout, connect } = openTerminal();
  const socket = new LazySocket();
  t.after(() => socket.emit('close'));
  const connection = await connect(socket);
  for (let round = 0; round < 3; round += 1) {
    await fill(stdout);
    // Little more than may be unread.
    const unread = socket.bufferedAmount / 1024;
    assert.ok(unread > 256 && unread <= 256 + 2 * 64, `${unread} KiB`);
    if (round < 2) socket.read();
    else socket.emit('close');
    assert.equal(stdout.isPaused(), false);
  }
  connection.end({ kind: 'closing' });
  terminal.end('closing');
});

test('a client that reads late has the last output before it is told that the shell has ended', async (t) => {
  const { stdout, exit, connect } = openTerminal();
  const socket = new LazySocket();
  t.after(() => socket.emit('close'));
  await connect(socket);
  const bytes = await fill(stdout);
  stdout.end(block);
  exit.resolve({ code: 0, signal: null });
  await until('it was told', () => {
    socket.read();
    return socket.got.includes('exit');
  });
  assert.equal(socket.outputBytes, bytes + block.length);
  assert.equal(socket.got.at(-1), 'exit');
});

test('a terminal that a client held up goes on for the one who takes it over, and is held by that one alone', async (t) => {
  const { terminal, stdout, connect } = openTerminal();
  const [first, second] = [new LazySocket(), new LazySocket()];
  t.after(() => [first, second].forEach((socket) => socket.emit('close')));
  await connect(first);
  const seen = await fill(stdout);
  await connect(second, seen);
  assert.equal(stdout.isPaused(), false);
  await fill(stdout);
  // What the first had not read is lost with its connection, and it has no say any more.
  first.read();
  assert.equal(stdout.isPaused(), true);
  second.read();
  assert.equal(stdout.isPaused(), false);
  terminal.end('closing');
});
