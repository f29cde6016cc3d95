import assert from 'node:assert/strict';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import type { ModelGateway } from '../../src/domain/ports/model-gateway.ts';
import { openGatewaySocket } from '../../src/runtime/gateway-socket.ts';
import { until } from '../support/until.ts';

const caller = { orgId: 'o', agentId: 'a', sandboxId: 's', model: 'm/m', tokenHash: '', secretKeys: {} };

async function flooded(t: TestContext, attempts: number, maxOfAll: number) {
  const folder = await mkdtemp('/tmp/berth-gws-');
  const path = join(folder, 'gateway.sock');
  const gateway = { handle: (_caller, _request, response) => void response.end('served') } as ModelGateway;
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
