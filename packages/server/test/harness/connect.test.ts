import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { commit, markDeployed } from '../support/harness-fixture.ts';
import { launchEnv, makePlaces, startLinked } from '../support/local-harness.ts';
import { servicePort } from '../support/service-port.ts';
import { until } from '../support/until.ts';

async function open(t: TestContext) {
  const places = await makePlaces();
  t.after(places.remove);
  await markDeployed(places);
  const { link } = await startLinked(t, places, launchEnv('anthropic', commit));
  return { link, control: link.control, places };
}

test('a server is started by its command when it is first asked for, once, and its bytes pass unchanged', async (t) => {
  const { link, control, places } = await open(t);
  const port = await servicePort();
  writeFileSync(
    join(places.workspace, 'server.cjs'),
    `require('fs').appendFileSync('starts', 'x');
    require('fs').writeFileSync('pid', String(process.pid));
    require('net').createServer((s) => { s.on('error', () => {}); s.once('data', (first) => {
      if (first.toString() === 'starts') return s.end(require('fs').readFileSync('starts'));
      if (first.toString() === 'reset') return s.resetAndDestroy();
      if (first.toString() === 'exit') process.exit(3);
      s.write(first); s.pipe(s);
    }); }).listen(Number(process.env.PORT), '127.0.0.1');`,
  );
  const target = { port, command: ['node', 'server.cjs'] };
  const [one, other] = await Promise.all([control.connect(target), control.connect(target)]);
  assert.equal(link.openConnections, 2);
  assert.equal(link.openCommands, 0);
  const bytes = Buffer.from(Array.from({ length: 2_000_000 }, (_, at) => (at * 7 + (at >> 8)) & 0xff));
  one.end(bytes);
  assert.ok((await buffer(one)).equals(bytes));
  other.write('starts');
  assert.equal(await text(other), 'x');

  const broken = await control.connect(target);
  broken.write('reset');
  await assert.rejects(text(broken), /broken off/);

  const pid = Number(readFileSync(join(places.workspace, 'pid'), 'utf8'));
  const last = await control.connect(target);
  last.write('exit');
  // Whether its end is an orderly one is the system's to say.
  await text(last).catch(() => '');
  // The kernel closes what a process had open in an order of its own: until all is closed it still takes connections.
  await until('the server is gone', () => !existsSync(`/proc/${pid}`));
  // One that has ended is started again.
  const next = await control.connect(target);
  next.write('starts');
  assert.equal(await text(next), 'xx');
  await until('no connection is left', () => link.openConnections === 0);
});

test('a server that takes no connections any more and is still about to end is started again', async (t) => {
  const { control, places } = await open(t);
  const port = await servicePort();
  writeFileSync(
    join(places.workspace, 'server.cjs'),
    `require('fs').appendFileSync('starts', 'x');
    const server = require('net').createServer((s) => s.once('data', (first) => {
      s.end(require('fs').readFileSync('starts'));
      if (first.toString() === 'end') server.close(() => setTimeout(() => process.exit(3), 300));
    })).listen(Number(process.env.PORT), '127.0.0.1');`,
  );
  const target = { port, command: ['node', 'server.cjs'] };
  for (const starts of ['x', 'xx']) {
    const connection = await control.connect(target);
    connection.end('end');
    assert.equal(await text(connection), starts);
  }
});

test('a server that cannot be reached says why', async (t) => {
  const { control } = await open(t);
  const port = await servicePort();
  await assert.rejects(control.connect({ port, command: ['no-such-program'] }), { code: 'not_found' });
  await assert.rejects(control.connect({ port, command: ['sh', '-c', 'exit 4'] }), {
    code: 'failed',
    message: 'Its command ended with exit code 4.',
  });
});

test('whoever lets go of a connection ends it inside', async (t) => {
  const { link, control } = await open(t);
  const closed = Promise.withResolvers<void>();
  const server = createServer((socket) =>
    socket
      .on('error', () => {})
      .on('close', () => closed.resolve())
      .resume(),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const connection = await control.connect({ port, command: null });
  connection.destroy();
  await closed.promise;
  await until('it is not counted any more', () => link.openConnections === 0);
});
