import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, afterEach, before, test } from 'node:test';
import { type BodyHold, Flight } from '../../src/domain/flight.ts';
import { HostSocket } from '../support/acp-client.ts';
import { edgeWorld, type EdgeWorld } from '../support/edge-world.ts';
import { hostFetch } from '../support/host-fetch.ts';
import { until } from '../support/until.ts';

const most = { smallBytes: 20_000, ofOrg: 8_000_000, ofAll: 12_000_000 };
const flight = new Flight(most);
let world: EdgeWorld;
let port: number;
let orgId: string;
let taken: BodyHold[] = [];
before(async () => {
  world = await edgeWorld({ app: { flight } });
  port = Number(new URL(await world.listen()).port);
  orgId = world.agent.orgId;
});
after(() => world.close());
afterEach(async () => {
  for (const hold of taken) hold.drop();
  taken = [];
  await allGivenBack();
});

const allGivenBack = () => until('all bytes are given back', () => flight.bytes === 0);
/** As if so many were under way. */
function take(org: string, bytes: number): void {
  const hold = flight.open(org);
  hold.add(bytes);
  taken.push(hold);
}

/** What is made of so many names and values counts as much. */
const ofValues = (count: number) => 64 * count;
const padding = (bytes: number) => 'x'.repeat(bytes);
const hostOfAgent = () => `${world.agent.id}.agents.localhost`;

/** A request whose body is still to come. */
function begin(path: string, head: string, { host = 'localhost', key = world.keys.owner } = {}) {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  const answer = { text: '' };
  socket.on('data', (piece) => (answer.text += String(piece)));
  socket.write(
    `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\n${head}\r\n\r\n`,
  );
  return { socket, answer };
}
const chunked = 'Transfer-Encoding: chunked';
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;

async function post(path: string, body: unknown, more: { key?: string; own?: boolean } = {}) {
  const host = more.own ? `localhost:${port}` : `${hostOfAgent()}:${port}`;
  const response = await hostFetch(port)(`http://${host}${path}`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'a2a-version': '1.0',
      accept: 'application/json, text/event-stream',
      authorization: `Bearer ${more.key ?? world.keys.owner}`,
    },
    body: JSON.stringify(body),
  });
  return {
    status: response.status,
    retryAfter: response.headers.get('retry-after'),
    text: await response.text(),
  };
}

test('a body counts while it comes, and no more when its request is answered', async () => {
  const body = JSON.stringify({ name: 'Counted', description: padding(50_000) });
  const { socket, answer } = begin('/v1/agents', `Content-Length: ${body.length}`);
  socket.write(body.slice(0, 40_000));
  await until('what has come counts', () => flight.bytesOf(orgId) === 40_000);
  socket.write(body.slice(40_000));
  await until('it is answered', () => answer.text.includes('description: '));
  await allGivenBack();
  socket.destroy();
});

test('a body counts no more when its client goes amid it', async () => {
  const { socket } = begin('/v1/agents', 'Content-Length: 100000');
  socket.write(padding(30_000));
  await until('what has come counts', () => flight.bytesOf(orgId) === 30_000);
  socket.destroy();
  await allGivenBack();
});

test('a body counts no more when it is too large, no JSON, or nested too deep', async () => {
  const large = begin('/v1/agents', chunked);
  large.socket.write(chunk(padding(40_000)));
  await until('what has come counts', () => flight.bytesOf(orgId) > 0);
  large.socket.write(chunk(padding(1_100_000)));
  await until('it is refused', () => large.answer.text.includes('"body_too_large"'));
  await allGivenBack();
  large.socket.destroy();
  for (const text of [
    padding(50_000),
    `${'['.repeat(20_000)}${']'.repeat(20_000)}`,
    `"\xff${padding(2_000)}"`,
  ]) {
    const broken = begin('/v1/agents', chunked);
    broken.socket.write(Buffer.from(`${chunk(text)}0\r\n\r\n`, 'latin1'));
    await until('it is refused', () => broken.answer.text.includes('HTTP/1.1 400'));
    await allGivenBack();
    broken.socket.destroy();
  }
});

/** A send whose run is not answered yet. */
async function sending(more: Record<string, unknown> = {}) {
  const before = world.core.sends.length;
  const body = JSON.stringify({ agentId: world.agent.id, content: padding(90_000), ...more });
  const begun = begin('/api/v1/chat/send', `Content-Length: ${body.length}`);
  begun.socket.write(body);
  await until('it is accepted', () => world.core.sends.length > before);
  const page = { limit: 1, cursor: null };
  const { items } = await world.core.runs.listForAgent(world.resources.owner, world.agent.id, page);
  return { ...begun, bytes: body.length + ofValues(5 + 2 * Object.keys(more).length), runId: items[0]!.id };
}

test('a message counts while its run is waited for, and no more when that has ended or the client has gone', async () => {
  const ended = await sending();
  assert.equal(flight.bytesOf(orgId), ended.bytes);
  world.core.settle(ended.runId, { message: 'done' });
  await until('it is answered', () => ended.answer.text.includes('"completed"'));
  await allGivenBack();
  ended.socket.destroy();
  const left = await sending();
  assert.equal(flight.bytesOf(orgId), left.bytes);
  left.socket.destroy();
  await allGivenBack();
});

test('a message whose stream has begun counts no more', async () => {
  const { socket, answer, runId } = await sending({ stream: true });
  await until('it has begun', () => answer.text.includes('text/event-stream'));
  await allGivenBack();
  world.core.settle(runId, { message: 'done' });
  socket.destroy();
});

const rpc = { jsonrpc: '2.0', id: 7, method: 'Nothing', params: { x: padding(30_000) } };
const surfaces: [string, unknown, boolean?][] = [
  ['/v1/agents', { name: 'x', description: padding(30_000) }, true],
  ['/a2a', rpc],
  ['/a2a/http/message:send', rpc],
  ['/mcp', rpc],
  ['/acp', rpc],
  ['/v1/chat/completions', rpc],
  ['/v1/responses', rpc],
  ['/runs', rpc],
];

test('beyond the bound of an organisation its large bodies are refused with when to come again, on every surface, small ones are not, nor are those of others', async () => {
  take(orgId, most.ofOrg);
  for (const [path, body, own = false] of surfaces) {
    const { status, retryAfter, text } = await post(path, body, { own });
    assert.deepEqual([status, retryAfter], [429, '1'], `${path}: ${text}`);
    assert.match(text, /Too many large requests of this organisation/, path);
  }
  assert.equal(flight.bytesOf(orgId), most.ofOrg);
  assert.equal((await post('/v1/agents', { name: 'x' }, { own: true })).status, 201);
  const foreign = { own: true, key: world.keys.foreign };
  const large = { name: 'x', metadata: padding(30_000) };
  assert.equal((await post('/v1/agents', large, foreign)).status, 400);
});

test('beyond the bound of the node those of nobody are taken', async () => {
  take('one', most.ofOrg);
  take('another', most.ofAll - most.ofOrg - 10_000);
  for (const [path, body, own = false] of surfaces) {
    const { status, retryAfter, text } = await post(path, body, { own });
    assert.deepEqual([status, retryAfter], [503, '1'], `${path}: ${text}`);
    assert.match(text, /Too many large requests are under way/, path);
  }
  assert.equal((await post('/v1/agents', { name: 'x' }, { own: true })).status, 201);
});

/** Short and much, in a body of each kind. */
const empties = Array.from({ length: 10_000 }, () => ({}));
const manyInIt = (path: string) =>
  path === '/v1/agents'
    ? { name: 'x', metadata: { x: empties } }
    : { jsonrpc: '2.0', id: 7, method: 'Nothing', params: { x: empties } };

test('what is made of many names and values counts before it is made, on every surface: a body whose bytes would fit is refused', async () => {
  take(orgId, most.ofOrg - 500_000);
  for (const [path, , own = false] of surfaces) {
    const { status, retryAfter, text } = await post(path, manyInIt(path), { own });
    assert.deepEqual([status, retryAfter], [429, '1'], `${path}: ${text}`);
    assert.match(text, /Too many large requests of this organisation/, path);
    await until('it is given back', () => flight.bytesOf(orgId) === most.ofOrg - 500_000);
  }
});

test('twenty bodies with thousands of numbers are taken at once where there is room for them', async () => {
  const body = { name: 'x', unknown: Array.from({ length: 5_000 }, (_, at) => at) };
  const bytes = JSON.stringify(body).length + ofValues(5_005);
  take(orgId, most.ofOrg - 20 * bytes);
  const all = Array.from({ length: 20 }, () => post('/v1/agents', body, { own: true }));
  for (const { status, text } of await Promise.all(all)) assert.equal(status, 400, text);
});

test('what has come of a body that is refused amid it counts no more', async () => {
  take(orgId, most.ofOrg - 60_000);
  const { socket, answer } = begin('/v1/agents', chunked);
  socket.write(chunk(padding(40_000)));
  await until('what has come counts', () => flight.bytesOf(orgId) > most.ofOrg - 60_000);
  socket.write(chunk(padding(40_000)));
  await until('it is refused', () => answer.text.includes('429'));
  await until('it is given back', () => flight.bytesOf(orgId) === most.ofOrg - 60_000);
  socket.destroy();
});

test('as many bodies as fit are all taken at once, to the last byte', async () => {
  const body = JSON.stringify({ name: 'x', description: padding(49_000) });
  const values = ofValues(5);
  take(orgId, most.ofOrg - 40 * (body.length + values));
  const all = Array.from({ length: 40 }, () => begin('/v1/agents', `Content-Length: ${body.length}`));
  for (const { socket } of all) socket.write(body.slice(0, -1));
  await until('they have come', () => flight.bytesOf(orgId) === most.ofOrg - 40 * (1 + values));
  for (const { socket } of all) socket.write(body.slice(-1));
  for (const { answer, socket } of all) {
    await until('it is answered', () => answer.text.includes('\r\n\r\n'));
    assert.match(answer.text, /description: /);
    socket.destroy();
  }
});

async function openSocket(t: { after(work: () => void): void }, key = world.keys.owner) {
  const socket = new HostSocket(`ws://${hostOfAgent()}:${port}/acp`, [], {
    headers: { authorization: `Bearer ${key}` },
  });
  t.after(() => socket.terminate());
  await once(socket, 'open');
  // oxlint-disable-next-line no-explicit-any -- the test reads into answers of all kinds
  const answers: any[] = [];
  socket.on('message', (data: Buffer) => answers.push(JSON.parse(String(data))));
  return { socket, answers };
}
const initialize = (bytes: number) =>
  `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"_meta":{"x":"${padding(bytes)}"}}}`;

test('a message over a WebSocket counts while its pieces come and until it is read, and what is refused in it does not stay', async (t) => {
  const { socket, answers } = await openSocket(t);
  const text = initialize(300_000);
  socket.send(text.slice(0, 200_000), { fin: false });
  await until('what has come counts', () => flight.bytesOf(orgId) > 199_000);
  socket.send(text.slice(200_000));
  await until('it is answered', () => answers.length === 1);
  await allGivenBack();
  socket.send(`{"jsonrpc":"2.0","id":2,"method":"session/list","params":[${padding(100_000)}`, {
    fin: false,
  });
  await until('the next one counts too', () => flight.bytesOf(orgId) > 99_000);
  socket.send(']}');
  await until('it is refused', () => answers.length === 2);
  assert.equal(answers[1].error.code, -32700);
  await allGivenBack();
});

test('a message counts no more when its WebSocket is closed amid it, or it is none', async (t) => {
  const left = await openSocket(t);
  left.socket.send(padding(200_000), { fin: false });
  await until('what has come counts', () => flight.bytesOf(orgId) > 199_000);
  left.socket.terminate();
  await allGivenBack();
  const binary = await openSocket(t);
  binary.socket.send(Buffer.alloc(200_000));
  assert.equal((await once(binary.socket, 'close'))[0], 1003);
  await allGivenBack();
});

test('pings and answers to them are of no message, however many', async (t) => {
  const { socket, answers } = await openSocket(t);
  let latest = '';
  socket.on('pong', (data: Buffer) => (latest = String(data)));
  socket.send(padding(10), { fin: false });
  for (let round = 0; round < 30; round += 1) {
    for (let at = 0; at < 5; at += 1) {
      socket.pong(padding(100));
      socket.ping(padding(100));
    }
    socket.ping(`round ${round}`);
    await until('all are read', () => latest === `round ${round}`);
  }
  await allGivenBack();
  socket.send('');
  await until('it is answered', () => answers.length > 0);
});

test('a client over a WebSocket for whose message there is no room is told to come again later, and nothing more of it is read', async (t) => {
  const { socket } = await openSocket(t);
  const other = await openSocket(t);
  take(orgId, most.ofOrg - 10_000);
  socket.send(initialize(300_000));
  assert.equal((await once(socket, 'close'))[0], 1013);
  await until('what came is given back', () => flight.bytesOf(orgId) === most.ofOrg - 10_000);
  other.socket.send(initialize(100));
  await until('a small message is answered', () => other.answers.length === 1);
});

test('over a WebSocket too values count before they are made, and the client is told to come again later', async (t) => {
  const { socket, answers } = await openSocket(t);
  const text = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"_meta":{"x":${JSON.stringify(empties)}}}}`;
  take(orgId, most.ofOrg - 500_000);
  socket.send(text);
  assert.equal((await once(socket, 'close'))[0], 1013);
  assert.deepEqual(answers, []);
  await until('what came is given back', () => flight.bytesOf(orgId) === most.ofOrg - 500_000);
  for (const hold of taken) hold.drop();
  const again = await openSocket(t);
  again.socket.send(text);
  await until('it is answered', () => again.answers.length === 1);
  assert.equal(again.answers[0].result.protocolVersion, 1);
});
