import assert from 'node:assert/strict';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import type { ModelGateway } from '../../src/domain/ports/model-gateway.ts';
import { openGatewaySocket } from '../../src/runtime/gateway-socket.ts';
import { inBytes } from '../support/chunks.ts';
import { closed as isClosed } from '../support/closed.ts';
import { until } from '../support/until.ts';

const caller = { orgId: 'o', agentId: 'a', sandboxId: 's', model: 'm/m', tokenHash: '', secretKeys: {} };

const serve: ModelGateway['handle'] = (_caller, _request, response) => void response.end('served');

async function flooded(t: TestContext, attempts: number, maxOfAll: number, handle = serve) {
  const folder = await mkdtemp('/tmp/berth-gws-');
  const path = join(folder, 'gateway.sock');
  const gateway = { handle } as ModelGateway;
  const socket = await openGatewaySocket(path, gateway, caller, maxOfAll);
  const clients: Socket[] = [];
  t.after(async () => {
    for (const client of clients) client.destroy();
    socket.close();
    await rm(folder, { recursive: true, force: true });
  });
  let closed = 0;
  for (let i = 0; i < attempts; i += 1) {
    const client = connect(path);
    client.on('error', () => undefined).on('close', () => (closed += 1));
    client.resume();
    clients.push(client);
  }
  return { clients, path, closed: () => closed };
}

test('a sandbox that floods the model gateway with connections keeps a bounded number of them', async (t) => {
  const { closed, clients } = await flooded(t, 300, 512);
  await until('the surplus is closed', () => closed() === 300 - 256);
  // One of those that stayed is served.
  const one = clients.find((client) => !client.destroyed)!;
  const answer = new Promise<string>((resolve) => one.once('data', (data) => resolve(String(data))));
  one.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  assert.match(await answer, /served$/);
});

test('all sandboxes together hold no more connections than the service can spare', async (t) => {
  const { closed } = await flooded(t, 60, 20);
  await until('the surplus is closed', () => closed() >= 40);
});

test('a sandbox that opens one connection after another finds the socket shut, and later open again', async (t) => {
  const { path } = await flooded(t, 0, 4_000);
  const isShut = async () => ((await stat(path)).mode & 0o777) === 0;
  const again = (): void =>
    void connect(path)
      .on('error', () => undefined)
      .destroy();
  // As fast as it can, and faster than is allowed also where a look takes long.
  const flood = async () => {
    for (let i = 0; i < 50; i += 1) again();
    return isShut();
  };
  await until('it is shut', flood);
  await until('it is open again', async () => !(await isShut()));
});

test('as many turns as a sandbox may have connections for begin in one moment, and none finds the socket shut', async (t) => {
  const { clients, path, closed } = await flooded(t, 0, 4_000);
  let served = 0;
  for (let i = 0; i < limits.gatewayConnections; i += 1) {
    const client = connect(path).on('error', () => undefined);
    client.once('data', () => (served += 1));
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    clients.push(client);
  }
  await until('all are served', () => served === limits.gatewayConnections);
  assert.deepEqual([closed(), (await stat(path)).mode & 0o777], [0, 0o666]);
});

const ask = 'POST /llm HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}';

test('of requests that are sent at once the first reaches the gateway, and the connection is closed after its answer', async (t) => {
  const responses: ServerResponse[] = [];
  const { path, clients } = await flooded(t, 0, 512, (_caller, _request, response) => {
    responses.push(response);
  });
  for (const isHeadSent of [false, true]) {
    responses.length = 0;
    const client = connect(path).on('error', () => undefined);
    clients.push(client);
    let text = '';
    client.on('data', (chunk: Buffer) => (text += String(chunk)));
    client.write(ask);
    await until('it is under way', () => responses.length === 1);
    const first = responses[0]!;
    if (isHeadSent) first.write('begun, ');
    const before = client.bytesWritten;
    client.write(ask.repeat(5));
    await until('they have come', () => first.req.socket.bytesRead === before + 5 * ask.length);
    first.end('served');
    await isClosed(client);
    assert.equal(responses.length, 1);
    assert.match(text, isHeadSent ? /keep-alive[^]*begun, [^]*served/ : /Connection: close[^]*served$/);
    assert.equal(text.match(/HTTP\/1\.1/g)!.length, 1);
  }
});

test('thousands of requests at once reach the gateway once, and leave nothing when the client goes', async (t) => {
  const responses: ServerResponse[] = [];
  const { path, clients } = await flooded(t, 0, 512, (_caller, _request, response) => {
    responses.push(response);
  });
  const flood = connect(path).on('error', () => undefined);
  clients.push(flood);
  flood.resume().write(ask.repeat(5_000));
  await isClosed(flood);
  const few = connect(path).on('error', () => undefined);
  few.write(ask.repeat(3));
  await until('both are under way', () => responses.length === 2);
  few.destroy();
  await until('both have ended', () => responses.every(({ closed }) => closed));
  assert.equal(responses.length, 2);
});

test('a sandbox whose connections are cut for what they send at once soon finds the socket shut', async (t) => {
  const { path, clients } = await flooded(t, 0, 512);
  // Far fewer than may be opened at once.
  for (let at = 0; at < 20; at += 1) {
    const client = connect(path);
    clients.push(client.on('error', () => undefined).resume());
    client.write(ask.repeat(5_000));
    await isClosed(client);
  }
  assert.equal((await stat(path)).mode & 0o777, 0);
});

test('a body in pieces of one byte reaches the gateway whole, in few pieces', async (t) => {
  const body = 'abcdefghij'.repeat(6_000);
  const seen = { text: '', pieces: 0, isWhole: false };
  const { path, clients } = await flooded(t, 0, 512, (_caller, request) => {
    request.on('data', (piece: Buffer) => {
      seen.text += piece.toString();
      seen.pieces += 1;
    });
    request.on('end', () => (seen.isWhole = true));
  });
  const client = connect(path);
  clients.push(client);
  client.write(`POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${inBytes(body)}`);
  await until('it has come', () => seen.isWhole);
  assert.ok(seen.text === body);
  assert.ok(seen.pieces < 600, `${seen.pieces} pieces`);
});

test('requests of one connection that wait for each answer are all served, and cost no more than it', async (t) => {
  const { path, clients } = await flooded(t, 0, 512);
  const client = connect(path);
  clients.push(client);
  for (let at = 0; at < 50; at += 1) {
    const answer = new Promise<string>((resolve) => client.once('data', (data) => resolve(String(data))));
    client.write(ask);
    assert.match(await answer, /keep-alive[^]*served$/);
  }
  // Those of other programs are few as well, and as many as may be open are let in at once.
  for (let at = 0; at < 200; at += 1) {
    const other = connect(path).on('error', () => undefined);
    clients.push(other);
    other.resume().end(ask);
    await isClosed(other);
  }
  assert.equal((await stat(path)).mode & 0o777, 0o666);
});

test('requests with an expectation count like any other: the first is refused, and the connection closed after its answer', async (t) => {
  const told: string[] = [];
  const { clients } = await flooded(t, 1, 10, (_caller, request, response) => {
    told.push(request.url ?? '');
    response.end();
  });
  const client = clients[0]!;
  let text = '';
  client.on('data', (data) => (text += String(data)));
  client.write('GET /x HTTP/1.1\r\nHost: x\r\nExpect: y\r\n\r\n'.repeat(1_000));
  await until('it is closed', () => client.destroyed);
  assert.deepEqual(told, []);
  assert.ok(text.split('HTTP/1.1 417 ').length <= 2, text.slice(0, 500));
});
