import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import type { Context } from 'hono';
import { readBody } from '../../src/edges/http/body.ts';
import type { Env } from '../../src/edges/http/request.ts';
import { inTime } from '../support/until.ts';
import { uncounted } from '../support/uncounted.ts';

const cases = {
  'half of its body': 'Content-Length: 20\r\n\r\n{"agentId"',
  'its whole body': 'Content-Length: 2\r\n\r\n{}',
};

for (const [name, rest] of Object.entries(cases)) {
  test(`a client that has gone after ${name}, before anybody read it, is not waited for`, async (t) => {
    const server = createServer().listen(0, '127.0.0.1');
    t.after(() => server.close());
    await once(server, 'listening');
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.write(`POST / HTTP/1.1\r\nHost: a\r\n${rest}`);
    const [incoming] = (await once(server, 'request')) as [IncomingMessage];
    // As where the key has to be looked up first.
    const closed = new Promise((resolve) => incoming.once('close', resolve));
    incoming.on('error', () => {});
    socket.resetAndDestroy();
    await closed;
    const context = { env: { incoming } } as unknown as Context<Env>;
    const read = inTime('it is told', readBody(context, 100, uncounted), 20_000);
    await assert.rejects(read, /The body ended before it was complete\./);
  });
}
