import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import type { WebSocket } from 'ws';
import { Connection } from '../../src/edges/terminal/connection.ts';
import { Terminal } from '../../src/services/terminal.ts';

/** A client that reads nothing until it is told to. */
class LazySocket extends EventEmitter {
  bufferedAmount = 0;
  #unread: { bytes: number; sent: () => void }[] = [];

  send(data: Buffer | string, sent: () => void): void {
    const bytes = Buffer.byteLength(data);
    this.bufferedAmount += bytes;
    this.#unread.push({ bytes, sent });
  }

  read(): void {
    for (const { bytes, sent } of this.#unread.splice(0)) {
      this.bufferedAmount -= bytes;
      sent();
    }
  }

  close(): void {}
}

test('a terminal waits for a client that does not read, and goes on when it reads or has gone', async (t) => {
  const stdout = new PassThrough();
  const at = { id: 'terminal', agentId: 'agent', keyId: 'key', graceMs: 60_000 };
  const terminal = new Terminal(at, {
    stdin: new PassThrough(),
    stdout,
    stderr: new PassThrough(),
    exited: new Promise(() => {}),
    resize: () => undefined,
    kill: () => undefined,
  });
  const socket = new LazySocket();
  t.after(() => socket.emit('close'));
  const connection = new Connection(socket as unknown as WebSocket, terminal, 0);
  const block = Buffer.alloc(64 * 1024);
  for (let round = 0; round < 3; round += 1) {
    while (!stdout.isPaused()) {
      const passed = once(stdout, 'data');
      stdout.write(block);
      await passed;
    }
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
