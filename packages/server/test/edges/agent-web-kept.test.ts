import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { after, before, test, type TestContext } from 'node:test';
import { closed } from '../support/closed.ts';
import { edgeWorld, type EdgeWorld } from '../support/edge-world.ts';
import { hostControl } from '../support/host-control.ts';
import { until } from '../support/until.ts';

let world: EdgeWorld;
let port: number;
let answer: (request: IncomingMessage, response: ServerResponse) => void;
/** The agent's server. */
const server = createServer((request, response) => answer(request, response));

before(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  world = await edgeWorld();
  world.sandboxHost.setControl(hostControl('/'));
  port = Number(new URL(await world.listen()).port);
  const web = { port: (server.address() as AddressInfo).port, public: false, command: null };
  await world.resources.db.sql`
    update deployments set manifest = jsonb_set(coalesce(manifest, '{}'::jsonb), '{web}', ${JSON.stringify(web)}::text::jsonb)
    where id = (select deployment_id from agents where id = ${world.agent.id})`;
});
after(async () => {
  server.closeAllConnections();
  server.close();
  await world.close();
});

/** What Node warns of from here on, as it does where an answer has more listeners than it expects. */
function heardWarnings(t: TestContext): string[] {
  const warnings: string[] = [];
  const listener = (warning: Error) => void warnings.push(warning.message);
  process.on('warning', listener);
  t.after(() => process.off('warning', listener));
  return warnings;
}

/** What comes on a connection of its own, until it ends. */
async function exchange(...requests: string[]): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port });
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  const head = `Host: ${world.agent.id}.agents.localhost\r\nAuthorization: Bearer ${world.keys.use}\r\n`;
  socket.write(requests.map((first) => first.replace('\r\n', `\r\n${head}`)).join(''));
  await closed(socket);
  return Buffer.concat(chunks).toString('latin1');
}

test('a connection is kept after answers without a body: to HEAD, without content, and not modified', async () => {
  answer = (request, response) => {
    const status = Number(new URL(request.url!, 'http://x').searchParams.get('status') ?? 200);
    if (status === 200) response.setHeader('content-length', 5);
    response.writeHead(status).end(status === 200 ? 'hello' : undefined);
  };
  const text = await exchange(
    'HEAD /a HTTP/1.1\r\n\r\n',
    'GET /b?status=204 HTTP/1.1\r\n\r\n',
    'GET /c?status=304 HTTP/1.1\r\n\r\n',
    'HEAD /d HTTP/1.1\r\n\r\n',
    'GET /e HTTP/1.1\r\nConnection: close\r\n\r\n',
  );
  const statuses = [...text.matchAll(/HTTP\/1.1 (\d+)/g)].map(([, code]) => Number(code));
  assert.deepEqual(statuses, [200, 204, 304, 200, 200]);
  assert.ok(text.endsWith('hello'));
});

test('the agent’s server is not asked to end the connection, which would take what it has not read with its answer; it ends with the answer', async () => {
  let isEnded = false;
  answer = (request, response) => {
    request.socket.once('close', () => (isEnded = true));
    response.end(`<${request.headers.connection}>`);
  };
  const text = await exchange('POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc');
  assert.match(text, /<keep-alive>/);
  await until('it has ended', () => isEnded);
});

test('a client that has gone amid its answer is noticed also when it sent something behind its request', async (t) => {
  const warnings = heardWarnings(t);
  let isLeft = false;
  answer = (_request, response) => {
    response.write('begin');
    response.on('close', () => (isLeft = true));
  };
  const client = connect({ host: '127.0.0.1', port });
  client.write(
    `GET / HTTP/1.1\r\nHost: ${world.agent.id}.agents.localhost\r\nAuthorization: Bearer ${world.keys.use}\r\n\r\n\r\n`,
  );
  await once(client, 'data');
  client.destroy();
  await until('the server was left', () => isLeft);
  assert.deepEqual(warnings, []);
});

test('a client that ended its side behind its request, with something behind it, has the whole answer', async (t) => {
  const warnings = heardWarnings(t);
  let ask: ServerResponse | null = null;
  answer = (_request, response) => (ask = response);
  const client = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  const chunks: Buffer[] = [];
  client.on('data', (chunk) => chunks.push(chunk));
  const text = () => Buffer.concat(chunks).toString('latin1');
  client.end(
    `GET / HTTP/1.1\r\nHost: ${world.agent.id}.agents.localhost\r\nAuthorization: Bearer ${world.keys.use}\r\n\r\n\r\n`,
  );
  const asked = await until('it was asked, and whether the client is still there', () =>
    text().startsWith('HTTP/1.1 102 ') ? ask : null,
  );
  asked.end('the whole');
  await until('the answer is there', () => text().includes('the whole'));
  client.destroy();
  assert.deepEqual(warnings, []);
});
