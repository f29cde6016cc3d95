import assert from 'node:assert/strict';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { connect, createServer, Socket, type AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import { closed } from '../support/closed.ts';
import { until } from '../support/until.ts';
import { egressWorld, exchange } from './fixture.ts';

const get = (host: string, path = '/', more = '') =>
  `GET http://${host}${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;

/** A host that takes connections and says nothing. */
async function silentHost(t: TestContext) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
    socket.resume();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const { port } = server.address() as AddressInfo;
  return { sockets, connect: () => connect({ port, host: '127.0.0.1', allowHalfOpen: true }) };
}

test('of plain requests that are sent at once the first goes out, and the connection is closed after its answer', async (t) => {
  const world = await egressWorld(t);
  const behind = [
    get('good.test', '/1'),
    'POST http://good.test/2 HTTP/1.1\r\nHost: good.test\r\nContent-Length: 4\r\n\r\nbody',
    get('good.test', '/3', 'Connection: Upgrade\r\nUpgrade: websocket\r\n'),
    'CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n',
  ];
  for (const tries of [...behind.map((one) => [one]), behind]) {
    world.arrived.length = 0;
    world.dialled.length = 0;
    const answer = await exchange(world.socketPath, [get('good.test', '/0'), ...tries].join(''));
    assert.deepEqual(world.arrived, ['GET good.test /0 ']);
    assert.deepEqual(world.dialled, ['93.184.216.1:80']);
    assert.deepEqual(answer.match(/HTTP\/1\.1 \d+|hello/g), ['HTTP/1.1 200', 'hello']);
    assert.match(answer, /\r\nConnection: close\r\n/i);
  }
});

test('a connection on which thousands of requests come at once opens no more than one', async (t) => {
  const host = await silentHost(t);
  let dialled = 0;
  const world = await egressWorld(t, { connect: () => ((dialled += 1), host.connect()) });
  for (const text of [
    get('good.test').repeat(5_000),
    get('good.test').repeat(2) + 'x'.repeat(limits.pipelinedBytes * 4),
  ]) {
    dialled = 0;
    // Nobody answers the first: it is closed for what came behind it.
    await exchange(world.socketPath, text);
    assert.ok(dialled <= 1, `${dialled} were dialled`);
    await until('nothing is left open', () => host.sockets.size === 0);
    assert.equal(world.proxy.stats().connections, 0);
  }
});

test('a sandbox whose connections are cut for what they send at once soon finds the socket shut, and others do not', async (t) => {
  const world = await egressWorld(t);
  const mode = () => statSync(world.socketPath).mode & 0o777;
  for (let at = 0; at < 40; at += 1) await exchange(world.socketPath, get('good.test').repeat(2));
  assert.equal(mode(), 0o666);
  for (let at = 0; at < 20; at += 1) {
    const client = connect(world.socketPath).on('error', () => undefined);
    client.resume().write(get('good.test').repeat(5_000));
    await closed(client);
  }
  assert.equal(mode(), 0);
});

test('a rule that is withdrawn cuts the request that is under way, whatever was sent behind it', async (t) => {
  const host = await silentHost(t);
  const world = await egressWorld(t, {
    connect: host.connect,
    policy: { allow: ['good.test', 'other.test'] },
  });
  const client = connect(world.socketPath).on('error', () => undefined);
  client.write(get('good.test') + get('other.test'));
  await until('the first is under way', () => host.sockets.size === 1);
  await world.setPolicy({ allow: ['other.test'] });
  await closed(client);
  await until('the host is free', () => host.sockets.size === 0);
});

test('when a program goes away, so does what was opened for it, also what is not connected yet', async (t) => {
  const host = await silentHost(t);
  const world = await egressWorld(t, { connect: host.connect });
  const client = connect(world.socketPath).on('error', () => undefined);
  client.write(get('good.test').repeat(3));
  await until('it is under way', () => host.sockets.size === 1);
  client.destroy();
  await until('the host is free', () => host.sockets.size === 0);

  const dialled: Socket[] = [];
  const stuck = await egressWorld(t, { connect: () => dialled[dialled.push(new Socket()) - 1]! });
  stuck.names.set('good.test', ['93.184.216.1', '93.184.216.2']);
  const hasty = connect(stuck.socketPath).on('error', () => undefined);
  hasty.write(get('good.test'));
  await until('it is dialled', () => dialled.length === 1);
  hasty.destroy();
  if (!dialled[0]!.closed) await once(dialled[0]!, 'close');
  await until('nothing is left open', () => stuck.proxy.stats().connections === 0);
  assert.equal(dialled.length, 1);
});
