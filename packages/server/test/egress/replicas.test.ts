import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { createCursors } from '../../src/domain/paging.ts';
import type { SandboxDriver } from '../../src/domain/ports/sandbox.ts';
import { openEgress } from '../../src/open-egress.ts';
import { until } from '../support/until.ts';
import { fakeDriver } from '../support/fake-sandbox.ts';
import { silentLog } from '../support/log.ts';
import { resourceWorld } from '../support/resources.ts';
import { exchange, openTunnel, reasonOf } from './fixture.ts';
import { closed } from '../support/closed.ts';

test('A policy that is set on one node holds on every other, for new connections and open ones', async (t) => {
  const world = await resourceWorld();
  t.after(() => world.close());
  const folder = mkdtempSync(join(tmpdir(), 'berth-egress-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const outside = createServer((socket: Socket) => void socket.on('error', () => undefined).pipe(socket));
  outside.listen(0, '127.0.0.1');
  await once(outside, 'listening');
  t.after(() => outside.close());
  const target = `127.0.0.1:${(outside.address() as { port: number }).port}`;
  const agent = await world.agents.create(world.owner, { name: 'Ours' });

  const node = async (name: string) => {
    const broker = { open: async () => ({}), close() {}, interceptorOf: () => null, closeAll() {} };
    const egress = openEgress({
      config: {
        defaultEgress: { mode: 'list', allow: [], deny: [], presets: [], transparent: false },
        allowPrivateNetworks: ['127.0.0.1/32'],
      },
      db: world.db,
      agents: world.stores.agents,
      cursors: createCursors(randomBytes(32)),
      doorbell: world.bells.join(),
      driver: fakeDriver() as SandboxDriver,
      broker,
      log: silentLog,
    });
    t.after(() => egress.close());
    const runDir = join(folder, name);
    mkdirSync(runDir);
    await egress.proxy.open({ orgId: world.orgId, agentId: agent.id, sandboxId: newId() }, runDir);
    return { egress, socket: join(runDir, 'egress.sock') };
  };
  const one = await node('one');
  const other = await node('other');
  const reason = async () => reasonOf((await openTunnel(other.socket, target)).head);

  assert.equal(await reason(), 'address_literal');
  const allow = [`${target}/tcp`];
  const policy = { mode: 'list' as const, allow, deny: [], presets: [], transparent: false };
  await one.egress.service.put(world.owner, agent.id, policy);
  await until('the other node opens it', async () => (await openTunnel(other.socket, target)).status === 200);
  const { socket } = await openTunnel(other.socket, target);
  const cut = closed(socket);
  socket.resume();
  await one.egress.service.remove(world.owner, agent.id);
  await cut;
  assert.equal(await reason(), 'address_literal');

  // A ring that was lost is made up for when the connection is back.
  world.bells.broken = true;
  await one.egress.service.put(world.owner, agent.id, policy);
  assert.equal((await openTunnel(one.socket, target)).status, 200);
  assert.equal(await reason(), 'address_literal');
  world.bells.broken = false;
  world.bells.reconnect();
  await until(
    'the other node opens it again',
    async () => (await openTunnel(other.socket, target)).status === 200,
  );
  assert.match(await exchange(other.socket, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'), /This is a proxy/);
});
