import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { parseNetwork } from '../../src/domain/address-ranges.ts';
import { until } from '../support/until.ts';
import { egressWorld, exchange, openTunnel, reasonOf, type World } from './fixture.ts';
import { clientHello, randomFrom } from './wire.ts';
import { closed } from '../support/closed.ts';

const get = (url: string, host: string, more = '') => `GET ${url} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;

/** Speaks TLS in a tunnel and resolves with the answer to a GET, or with the error's code. */
async function overTls(world: World, authority: string, servername: string): Promise<string> {
  const { socket, status, head } = await openTunnel(world.socketPath, authority);
  if (status !== 200) return reasonOf(head);
  const tls = connectTls({ socket, servername, rejectUnauthorized: false });
  return new Promise((resolve) => {
    let all = '';
    tls.on('data', (chunk: Buffer) => (all += chunk.toString()));
    tls.on('error', (error: NodeJS.ErrnoException) => resolve(`failed ${error.code}`));
    tls.on('end', () => resolve(all));
    tls.on('secureConnect', () =>
      tls.write(`GET / HTTP/1.1\r\nHost: ${servername}\r\nConnection: close\r\n\r\n`),
    );
  });
}

async function readAll(socket: Socket): Promise<string> {
  let all = '';
  socket.on('data', (chunk: Buffer) => (all += chunk.toString('latin1')));
  socket.resume();
  await closed(socket);
  return all;
}

test('A listed host is reached by plain HTTP and by TLS in a tunnel, on ports 80 and 443 only', async (t) => {
  const world = await egressWorld(t);
  assert.match(
    await exchange(world.socketPath, get('http://good.test/a?b', 'good.test')),
    /200 OK[^]*hello from good.test/,
  );
  assert.equal(world.arrived[0], 'GET good.test /a?b ');
  assert.match(await overTls(world, 'good.test:443', 'good.test'), /hello from good.test/);
  assert.equal(await overTls(world, 'good.test:7', 'good.test'), 'not_listed');
  assert.deepEqual(world.dialled, ['93.184.216.1:80', '93.184.216.1:443']);
});

test('A host that is not listed is refused with its reason and the remedy, and reported', async (t) => {
  const world = await egressWorld(t);
  const plain = await exchange(world.socketPath, get('http://other.test/', 'other.test'));
  assert.match(plain, /^HTTP\/1.1 403 /);
  assert.equal(reasonOf(plain), 'not_listed');
  assert.ok(plain.includes(`berth egress allow ${world.owner.agentId} other.test:80`));
  const { head } = await openTunnel(world.socketPath, 'other.test:443');
  assert.equal(reasonOf(head), 'not_listed');
  assert.deepEqual(world.dialled, []);
  const { reason, host, port, agentId } = world.refusals[1]!;
  assert.deepEqual(
    { reason, host, port, agentId },
    { reason: 'not_listed', host: 'other.test', port: 443, agentId: world.owner.agentId },
  );
});

test('Modes, presets, suffixes and deny rules decide; deny wins', async (t) => {
  const world = await egressWorld(t);
  const names = ['sub.good.test', 'good.test', 'other.test', 'registry.npmjs.org'];
  for (const name of names) world.names.set(name, ['93.184.216.1']);
  const reached = async () => {
    const all: string[] = [];
    for (const name of names) {
      if ((await exchange(world.socketPath, get(`http://${name}/`, name))).includes('200 OK')) all.push(name);
    }
    return all;
  };
  await world.setPolicy({ mode: 'none' });
  assert.deepEqual(await reached(), []);
  await world.setPolicy({ mode: 'list', allow: ['*.good.test'], presets: ['npm'] });
  assert.deepEqual(await reached(), ['sub.good.test', 'registry.npmjs.org']);
  await world.setPolicy({ deny: ['registry.npmjs.org'] });
  assert.deepEqual(await reached(), ['sub.good.test']);
  await world.setPolicy({ mode: 'open', deny: ['good.test:80'] });
  assert.deepEqual(await reached(), ['sub.good.test', 'other.test', 'registry.npmjs.org']);
  await world.setPolicy({ deny: ['93.184.216.0/24:80'] });
  assert.deepEqual(await reached(), []);
});

test('Private, loopback, link-local, metadata and own addresses are never dialled, however they are written', async (t) => {
  const world = await egressWorld(t, { policy: { mode: 'open' } });
  const addresses = [
    ...['127.0.0.1', '10.0.0.1', '169.254.169.254', '100.64.0.1', '0.0.0.0', '192.168.1.1', '172.16.0.1'],
    ...[
      '::1',
      '::ffff:127.0.0.1',
      '::ffff:169.254.169.254',
      'fe80::1',
      'fd00:ec2::254',
      '64:ff9b::a9fe:a9fe',
    ],
    ...['2002:7f00:1::', '::7f00:1', '224.0.0.1', '255.255.255.255', '168.63.129.16', '64:ff9b:1::1'],
  ];
  for (const address of addresses) {
    // One good address does not make up for it.
    world.names.set('x.test', ['93.184.216.1', address]);
    assert.equal(
      reasonOf((await openTunnel(world.socketPath, 'x.test:443')).head),
      'private_address',
      address,
    );
  }
  // Addresses in the request itself: not listed, and when they are, still closed.
  const literals = [
    '127.0.0.1',
    '0x7f.1',
    '2130706433',
    '0177.0.0.1',
    '[::1]',
    '[::ffff:7f00:1]',
    '169.254.169.254',
  ];
  for (const literal of literals) {
    assert.equal(
      reasonOf((await openTunnel(world.socketPath, `${literal}:80`)).head),
      'private_address',
      literal,
    );
  }
  await world.setPolicy({ allow: ['127.0.0.0/8', '169.254.169.254', '[::1]', '10.0.0.0/8:*'] });
  for (const literal of literals) {
    assert.equal(
      reasonOf((await openTunnel(world.socketPath, `${literal}:80`)).head),
      'private_address',
      literal,
    );
  }
  assert.deepEqual(world.dialled, []);
});

test('An address is reached when a rule lists it', async (t) => {
  const world = await egressWorld(t, { policy: { mode: 'open' } });
  assert.equal(reasonOf((await openTunnel(world.socketPath, '93.184.216.1:443')).head), 'address_literal');
  await world.setPolicy({ mode: 'list', allow: ['93.184.216.1:443'] });
  assert.equal((await openTunnel(world.socketPath, '93.184.216.1:443')).status, 200);
  // IPv4 inside IPv6 is the same address for every rule.
  assert.equal((await openTunnel(world.socketPath, '[::ffff:93.184.216.1]:443')).status, 200);
  await world.setPolicy({ deny: ['93.184.216.1'] });
  assert.equal(reasonOf((await openTunnel(world.socketPath, '[::ffff:5db8:d801]:443')).head), 'denied');
});

test("The operator's switch opens a private range", async (t) => {
  const world = await egressWorld(t, { allowPrivateNetworks: [parseNetwork('10.1.0.0/16')!] });
  world.names.set('good.test', ['10.1.2.3']);
  assert.match(await exchange(world.socketPath, get('http://good.test/', 'good.test')), /200 OK/);
  world.names.set('good.test', ['10.2.2.3']);
  assert.equal(
    reasonOf(await exchange(world.socketPath, get('http://good.test/', 'good.test'))),
    'private_address',
  );
});

test('A name is resolved once for each connection, and what was checked is dialled', async (t) => {
  let calls = 0;
  const world = await egressWorld(t, {
    // Rebinding: public for whoever checks, private for whoever asks again.
    resolve: async () => (++calls % 2 === 1 ? ['93.184.216.1'] : ['127.0.0.1']),
  });
  assert.match(await exchange(world.socketPath, get('http://good.test/', 'good.test')), /200 OK/);
  assert.deepEqual([calls, world.dialled], [1, ['93.184.216.1:80']]);
  assert.equal(
    reasonOf(await exchange(world.socketPath, get('http://good.test/', 'good.test'))),
    'private_address',
  );
  assert.deepEqual(world.dialled, ['93.184.216.1:80']);
});

test('The server name of TLS must be the name of the tunnel', async (t) => {
  const world = await egressWorld(t);
  assert.match(await overTls(world, 'good.test:443', 'other.test'), /^failed/);
  assert.match(await overTls(world, 'good.test:443', ''), /^failed/);
  assert.match(await overTls(world, 'GOOD.test.:443', 'good.TEST'), /hello/);
  assert.deepEqual(
    world.refusals.map(({ reason }) => reason),
    ['name_mismatch', 'name_missing'],
  );
  // Also where everything is open; a missing name is let through there.
  await world.setPolicy({ mode: 'open' });
  assert.match(await overTls(world, 'good.test:443', 'other.test'), /^failed/);
  assert.match(await overTls(world, 'good.test:443', ''), /hello/);
  await world.setPolicy({ mode: 'list', allow: ['good.test:443/tcp'] });
  assert.match(await overTls(world, 'good.test:443', ''), /hello/);
  assert.equal(world.arrived.length, 3);
});

test('A tunnel carries TLS or plain HTTP to its own host; other protocols need a rule that says so', async (t) => {
  const world = await egressWorld(t, { policy: { allow: ['good.test:*'] } });
  const inTunnel = async (authority: string, bytes: string) => {
    const { socket } = await openTunnel(world.socketPath, authority);
    socket.write(bytes);
    return readAll(socket);
  };
  assert.match(await inTunnel('good.test:80', get('/x', 'good.test')), /200 OK[^]*hello from good.test/);
  assert.equal(reasonOf(await inTunnel('good.test:80', get('/x', 'other.test'))), 'name_mismatch');
  assert.equal(
    reasonOf(await inTunnel('good.test:80', get('http://other.test/', 'other.test'))),
    'bad_request',
  );
  assert.equal(
    reasonOf(await inTunnel('good.test:80', 'CONNECT other.test:443 HTTP/1.1\r\nHost: other.test\r\n\r\n')),
    'bad_request',
  );
  assert.equal(await inTunnel('good.test:7', 'anything else\n'), '');
  assert.equal(world.refusals.at(-1)?.reason, 'not_tls');
  await world.setPolicy({ allow: ['good.test:7/tcp', 'good.test:22/tcp'] });
  const echo = await openTunnel(world.socketPath, 'good.test:7');
  echo.socket.end('anything else\n');
  assert.equal(await readAll(echo.socket), 'anything else\n');
  const ssh = await openTunnel(world.socketPath, 'good.test:22');
  ssh.socket.resume();
  assert.match((await once(ssh.socket, 'data')).toString(), /^SSH-2.0/);
  ssh.socket.destroy();
  assert.equal(world.arrived.filter((line) => !line.includes(' good.test ')).length, 0);
});

test('Where everything is open a host may speak first, and plain HTTP is read all the same', async (t) => {
  const world = await egressWorld(t, { policy: { mode: 'open' } });
  const ssh = await openTunnel(world.socketPath, 'good.test:22');
  ssh.socket.resume();
  assert.match((await once(ssh.socket, 'data')).toString(), /^SSH-2.0/);
  ssh.socket.destroy();
  // Servers skip empty lines before a request, and know methods that this proxy does not.
  const [plain, search] = [get('/', 'other.test'), 'SEARCH / HTTP/1.1\r\nHost: other.test\r\n\r\n'];
  for (const pieces of [
    [plain],
    ['\r\n', plain],
    ['\n\r\n\r', `\n${plain}`],
    [search],
    ['SEA', 'RCH / HT', search.slice(11)],
  ]) {
    const http = await openTunnel(world.socketPath, 'good.test:80');
    for (const piece of pieces) {
      http.socket.write(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.equal(reasonOf(await readAll(http.socket)), 'name_mismatch', pieces.join('|'));
  }
  assert.deepEqual(world.arrived, []);
  // Lines that are no requests pass as they are.
  for (const line of ['NICK somebody\r\n', '\r\nhello\n', 'get key\r\n']) {
    const echo = await openTunnel(world.socketPath, 'good.test:7');
    echo.socket.end(line);
    assert.equal(await readAll(echo.socket), line);
  }
});

test('A WebSocket over plain HTTP passes, in a tunnel and without one', async (t) => {
  const world = await egressWorld(t);
  const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\n';
  for (const inTunnel of [true, false]) {
    const { socket } = inTunnel
      ? await openTunnel(world.socketPath, 'good.test:80')
      : { socket: connect(world.socketPath) };
    socket.write(get(inTunnel ? '/' : 'http://good.test/', 'good.test', upgrade));
    let all = '';
    socket.on('data', (chunk: Buffer) => (all += chunk.toString()));
    socket.resume();
    await until('it switched', () => all.includes('\r\n\r\n'));
    assert.match(all, /^HTTP\/1.1 101/);
    socket.write('ping');
    await until('it echoed', () => all.endsWith('ping'));
    socket.destroy();
  }
  assert.equal(
    reasonOf(
      await exchange(
        world.socketPath,
        get('http://good.test/', 'good.test', 'Connection: Upgrade\r\nUpgrade: h2c\r\n'),
      ),
    ),
    'bad_request',
  );
});

test('A change of the policy holds for the next connection, and cuts tunnels to what is denied now', async (t) => {
  const world = await egressWorld(t, { policy: { allow: ['good.test:7/tcp'] } });
  const { socket } = await openTunnel(world.socketPath, 'good.test:7');
  socket.write('still here');
  socket.resume();
  assert.equal((await once(socket, 'data')).toString(), 'still here');
  await world.setPolicy({ deny: ['*.test:443'] });
  socket.write('and now');
  assert.equal((await once(socket, 'data')).toString(), 'and now');
  await world.setPolicy({ deny: ['good.test:*'] });
  await closed(socket);
  assert.equal(world.refusals.at(-1)?.reason, 'denied');
  assert.equal(reasonOf((await openTunnel(world.socketPath, 'good.test:7')).head), 'denied');
});

test('What cannot be read in one way only is refused, and nothing of it goes out', async (t) => {
  const world = await egressWorld(t, { policy: { mode: 'open' } });
  const good = 'Host: good.test\r\n';
  const bad = [
    `POST http://good.test/ HTTP/1.1\r\n${good}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `POST http://good.test/ HTTP/1.1\r\n${good}Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde`,
    `POST http://good.test/ HTTP/1.1\r\n${good}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
    `POST http://good.test/ HTTP/1.1\r\n${good}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`,
    `POST http://good.test/ HTTP/1.0\r\n${good}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `POST http://good.test/ HTTP/1.1\r\n${good}Content-Length: +4\r\n\r\nabcd`,
    `GET http://good.test/ HTTP/1.1\r\n${good}X: a\r\n folded: b\r\n\r\n`,
    `GET http://good.test/ HTTP/1.1\r\n${good}X : a\r\n\r\n`,
    `GET http://good.test/ HTTP/1.1\r\n${good}X: a\0b\r\n\r\n`,
    `GET http://good.test/ HTTP/1.1\r\n${good}X: a\rY: b\r\n\r\n`,
    `GET http://good.test/ HTTP/1.1\r\n\r\n`,
    `GET http://good.test/ HTTP/1.1\r\n${good}${good}\r\n`,
    `GET http://good.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n`,
    `GET http://good.test@127.0.0.1/ HTTP/1.1\r\n${good}\r\n`,
    `GET http://good.test\\@other.test/ HTTP/1.1\r\n${good}\r\n`,
    `GET http://good.test%2eother.test/ HTTP/1.1\r\n${good}\r\n`,
    `GET http://good.test#.other.test/ HTTP/1.1\r\n${good}\r\n`,
    `GET https://good.test/ HTTP/1.1\r\n${good}\r\n`,
    `GET ftp://good.test/ HTTP/1.1\r\n${good}\r\n`,
    `GET / HTTP/1.1\r\n${good}\r\n`,
    `GET //good.test/ HTTP/1.1\r\n${good}\r\n`,
    `CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n\r\n`,
    `CONNECT good.test:0 HTTP/1.1\r\nHost: good.test\r\n\r\n`,
    `CONNECT good.test:99999 HTTP/1.1\r\nHost: good.test\r\n\r\n`,
    `CONNECT http://good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n`,
    `CONNECT good.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n`,
    `CONNECT a@good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n`,
    `CONNECT [fe80::1%25eth0]:443 HTTP/1.1\r\nHost: good.test\r\n\r\n`,
    `CONNECT 127.1.good.1:443 HTTP/1.1\r\nHost: good.test\r\n\r\n`,
    `CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\n\r\nabc`,
    `GET http://good.test/ HTTP/2.0\r\n${good}\r\n`,
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    `GET http://good.test/ HTTP/1.1\r\n${good}${'X: a\r\n'.repeat(200)}\r\n`,
    `GET http://good.test/ HTTP/1.1\r\n${good}X: ${'a'.repeat(20_000)}\r\n\r\n`,
    '\x16\x03\x01\x00\x05hello',
    'garbage\r\n\r\n',
  ];
  for (const bytes of bad) {
    const answer = await exchange(world.socketPath, bytes);
    assert.match(answer, /^HTTP\/1.1 4\d\d /, JSON.stringify(bytes.slice(0, 120)));
    assert.match(reasonOf(answer), /^(bad_request|name_mismatch)$/, JSON.stringify(bytes.slice(0, 120)));
  }
  assert.deepEqual([world.arrived, world.dialled], [[], []]);
});

test('A body arrives whole with the length that it had, and a second request behind it is not one', async (t) => {
  const world = await egressWorld(t);
  const head = 'POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\n';
  const second = get('http://other.test/evil', 'other.test');
  await exchange(world.socketPath, `${head}Content-Length: 5\r\n\r\nhello${second}`);
  await exchange(
    world.socketPath,
    `${head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n${second}`,
  );
  await exchange(
    world.socketPath,
    `${head}Content-Length: 5\r\nConnection: close, X-Drop\r\nX-Drop: 1\r\n\r\nhello`,
  );
  assert.deepEqual(world.arrived, Array(3).fill('POST good.test / hello'));
});

test('A host that is away, unknown or silent is told as such', async (t) => {
  const world = await egressWorld(t, { policy: { mode: 'open' } });
  const unknown = await exchange(world.socketPath, get('http://nowhere.test/', 'nowhere.test'));
  assert.match(unknown, /^HTTP\/1.1 502/);
  assert.equal(reasonOf(unknown), 'name_not_found');
  const away = await exchange(world.socketPath, get('http://good.test:9/', 'good.test:9'));
  assert.equal(reasonOf(away), 'connect_failed');
  const noHttp = await exchange(world.socketPath, get('http://good.test:22/', 'good.test:22'));
  assert.equal(reasonOf(noHttp), 'connect_failed');
});

test('Connections of a sandbox are bounded', async (t) => {
  const world = await egressWorld(t, { policy: { allow: ['good.test:7/tcp'] }, limits: { connections: 3 } });
  const held = [];
  for (let i = 0; i < 3; i++) held.push((await openTunnel(world.socketPath, 'good.test:7')).socket);
  const fourth = await openTunnel(world.socketPath, 'good.test:7');
  assert.equal(fourth.status, 503);
  assert.equal(reasonOf(fourth.head), 'too_many_connections');
  for (const socket of [...held, fourth.socket]) socket.destroy();
  await until('nothing is left open', () => world.proxy.stats().connections === 0);
});

test('Connections that say nothing are closed in time', async (t) => {
  const world = await egressWorld(t, {
    policy: { allow: ['good.test:7/tcp', 'good.test'] },
    // Each is opened within these times: they must be enough for that.
    limits: { headMs: 5_000, idleMs: 6_500 },
  });
  const closedByProxy = async (authority: string): Promise<void> => {
    const { socket } = await openTunnel(world.socketPath, authority);
    socket.resume();
    await closed(socket);
  };
  const [head] = await Promise.all([
    // A head, or the first bytes of a tunnel, that never come; and a tunnel that stands idle.
    exchange(world.socketPath, 'GET http://good.test/ HTTP/1.1\r\n'),
    closedByProxy('good.test:443'),
    closedByProxy('good.test:7'),
  ]);
  assert.equal(head, '');
  assert.deepEqual(
    world.refusals.map(({ reason }) => reason),
    ['not_tls'],
  );
  await until('nothing is left open', () => world.proxy.stats().connections === 0);
});

test('Bytes are counted by host and direction', async (t) => {
  const world = await egressWorld(t, { policy: { allow: ['good.test:7/tcp', 'good.test'] } });
  const { socket } = await openTunnel(world.socketPath, 'good.test:7');
  socket.end('x'.repeat(10_000));
  assert.equal((await readAll(socket)).length, 10_000);
  await until('it was counted', () => world.traffic.length > 0);
  const { host, sentBytes, receivedBytes, connections } = world.traffic[0]!;
  assert.deepEqual(
    { host, sentBytes, receivedBytes, connections },
    { host: 'good.test', sentBytes: 10_000, receivedBytes: 10_000, connections: 1 },
  );
});

test('A loop of connections is slowed down, and every one of them is answered', async (t) => {
  const limits = { connections: 10, connectionsPerSecond: 50 };
  const world = await egressWorld(t, { policy: { allow: ['good.test:7/tcp', 'good.test'] }, limits });
  const startedMs = performance.now();
  for (let i = 0; i < 30; i += 1) await exchange(world.socketPath, get('http://other.test/', 'other.test'));
  assert.ok(performance.now() - startedMs > 300);
  const [first] = world.refusals;
  assert.ok(world.refusals.every(({ reason }) => reason === first?.reason));
});

test('Whatever is sent, cut and aborted, the proxy goes on, leaves nothing open, and sends on nothing but to its host', async (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const random = randomFrom(seed);
  const world = await egressWorld(t, {
    policy: { mode: 'open', deny: ['other.test:*'] },
    limits: { headMs: 200, idleMs: 500, connectionsPerSecond: 1_000 },
  });
  const hello = await clientHello('good.test');
  const starts = [
    Buffer.from(get('http://good.test/a', 'good.test')),
    Buffer.from('POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: 5\r\n\r\nhello'),
    Buffer.from(
      'POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n',
    ),
    Buffer.concat([Buffer.from('CONNECT good.test:443 HTTP/1.1\r\n\r\n'), hello]),
    Buffer.concat([
      Buffer.from('CONNECT good.test:80 HTTP/1.1\r\n\r\n'),
      Buffer.from(get('/b', 'good.test')),
    ]),
    Buffer.from('CONNECT good.test:7 HTTP/1.1\r\n\r\nanything'),
    Buffer.from(get('http://good.test/', 'good.test', 'Connection: Upgrade\r\nUpgrade: websocket\r\n')),
  ];
  const one = async () => {
    let bytes = Buffer.from(starts[random(starts.length)]!);
    for (let edits = random(4); edits > 0; edits -= 1) {
      const at = random(bytes.length);
      const piece = [
        Buffer.from([random(256)]),
        Buffer.from('\r\n'),
        Buffer.from('other.test'),
        Buffer.alloc(0),
      ][random(4)]!;
      bytes = Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(at + random(2))]);
    }
    const socket = connect(world.socketPath);
    socket.on('error', () => undefined).resume();
    for (let at = 0; at < bytes.length && !socket.destroyed;) {
      const size = 1 + random(bytes.length);
      socket.write(bytes.subarray(at, at + size));
      at += size;
      if (random(8) === 0) socket.destroy();
      else if (random(4) === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    if (random(3) === 0) socket.end();
    if (!socket.destroyed) await closed(socket);
  };
  for (let round = 0; round < 15; round += 1) await Promise.all(Array.from({ length: 20 }, one));
  await until('nothing is left open', () => world.proxy.stats().connections === 0);
  // A connection of its own may come too late for limits as short as these.
  const last = () => exchange(world.socketPath, get('http://good.test/last', 'good.test'));
  await until('the proxy goes on', async () => (await last()).includes('200 OK'));
  const elsewhere = [
    ...world.arrived.filter((line) => !/^\S+ good\.test(:80)? /.test(line)),
    ...world.dialled.filter((to) => !to.startsWith('93.184.216.1:')),
  ];
  assert.deepEqual(elsewhere, [], `seed ${seed}`);
});
