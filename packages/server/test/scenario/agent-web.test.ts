import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { WebSocket } from 'ws';
import { hostFetch } from '../support/host-fetch.ts';
import type { Pushed, Workshop } from '../support/scenario.ts';
import { workshop } from '../support/scenario.ts';
import type { Service } from '../support/service.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';

let service: Service;
let shop: Workshop;
let agent: Pushed;
let at: typeof fetch;

/** HTTP and a WebSocket that says back, in a few lines without a package; `starts` counts its own. */
const files = {
  'agent.json': JSON.stringify({ web: { port: 8080, public: true, command: ['node', 'server.mjs'] } }),
  'server.mjs': `
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
const server = createServer((request, response) => {
  if (request.url === '/slow') return void response.writeHead(200).write('begin ');
  response.end(process.env.PORT + ' ' + request.url + ' ' + process.pid);
});
server.on('upgrade', (request, socket) => {
  const accept = createHash('sha1').update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n');
  socket.write(Buffer.from([0x81, 2, 0x68, 0x69]));
  socket.on('data', () => socket.write(Buffer.from([0x81, 5, ...Buffer.from('again')])));
  socket.on('error', () => {});
});
server.listen(Number(process.env.PORT), '127.0.0.1');`,
};

before(async () => {
  service = await startService({ env: { BERTH_RATE_LIMIT: '100000/60' } });
  shop = await workshop(service);
  agent = await shop.agent(files);
  at = hostFetch(service.port);
});
after(async () => {
  await shop?.close();
  await service?.end();
});

const origin = () => `http://${agent.id}.localhost:${service.port}`;
const page = async (path: string) => {
  const response = await at(`${origin()}${path}`);
  return { status: response.status, text: await response.text() };
};
async function stateOf(): Promise<string> {
  const reply = await service.api('GET', `/sandbox/${agent.id}`);
  assert.equal(reply.status, 200, reply.text);
  return reply.body.sandbox.state;
}

test('the first request to an agent’s address starts its sandbox and its server, and a WebSocket goes through', async () => {
  assert.equal(await stateOf(), 'stopped');
  const { status, text } = await page('/hello?x=1');
  assert.equal(status, 200, text);
  assert.match(text, /^8080 \/hello\?x=1 \d+$/);
  assert.equal(await stateOf(), 'running');
  const client = new WebSocket(`ws://127.0.0.1:${service.port}/live`, {
    headers: { host: new URL(origin()).host },
  });
  const [first] = (await once(client, 'message')) as [Buffer];
  assert.equal(first.toString(), 'hi');
  client.send('x');
  const [said] = (await once(client, 'message')) as [Buffer];
  assert.equal(said.toString(), 'again');
  client.terminate();
});

test('a new deployment does not wait for open answers: they are cut, and the new server answers', async () => {
  const response = await at(`${origin()}/slow`);
  const rest = response.text();
  const cut = assert.rejects(rest);
  const pushed = await agent.push({
    'server.mjs': files['server.mjs'].replace(`' ' + request.url`, `' new ' + request.url`),
  });
  assert.equal(pushed.code, 0, pushed.stderr);
  const { text } = await until('the new one answers', async () => {
    const reply = await page('/');
    return reply.status === 200 && reply.text.includes(' new ') ? reply : null;
  });
  assert.match(text, /^8080 new \//);
  await cut;
});

test('after a kill -9 of the service the address answers again', async () => {
  await service.kill9();
  await service.restart();
  assert.match((await page('/')).text, /^8080 new \/ \d+$/);
});

test('a server that ends at once is told of as 502, and its words are in the sandbox’s log', async () => {
  await agent.push({ 'server.mjs': 'console.error("no such thing"); process.exit(7);' });
  await until('it is told of', async () => (await page('/')).status === 502);
  const reply = await page('/');
  assert.deepEqual(JSON.parse(reply.text), {
    error: "The agent's web server could not be reached.",
    code: 'bad_gateway',
  });
  const keyed = (await service.api('GET', `/sandbox/${agent.id}/logs`, undefined, { accept: 'text/plain' }))
    .text;
  assert.match(keyed, /no such thing/);
  assert.match(keyed, /The web server ended with exit code 7\./);
});
