import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { DomainError } from '../../src/domain/errors.ts';
import { Flight } from '../../src/domain/flight.ts';
import { limits } from '../../src/domain/limits.ts';
import { createWebhookEdge } from '../../src/edges/webhooks.ts';
import { until } from '../support/until.ts';

const megabyte = 1_000_000;
const idOf = (channel: string) => `01999999-0000-7000-8000-0000000000${channel}`;
/** The first digit of a channel is its organisation. */
const orgIdOf = (id: string) => (id === '' ? '' : id.at(-2)!);

let bodies: Flight;
let sharedBodies: Flight;
let edge: ReturnType<typeof createWebhookEdge>;
let lane: 'ordinary' | 'reserved';
let bodyBytes: number;
let received = 0;
/** Until then no delivery is answered. */
let working: Promise<void>;
let server: Server;
let port: number;
let senders: Socket[] = [];

function open(most?: { bodies: Flight; sharedBodies: Flight }): void {
  edge = createWebhookEdge({
    baseUrl: 'https://berth.example',
    inbox: {
      admit: async (_kind, id) => ({
        orgId: orgIdOf(id),
        bodyBytes,
        methods: ['POST'],
        whenBusy: 503,
        lane: () => lane,
      }),
      async receive(_kind, _id, { body }) {
        received += 1;
        await working;
        return { status: 200, headers: {}, body: String(body.length) };
      },
    },
    ...most,
  });
}

before(async () => {
  server = createServer((request, response) => {
    edge.handle(request, response).catch((error: unknown) => {
      const known = error instanceof DomainError ? error : null;
      if (known?.retryAfterSeconds) response.setHeader('Retry-After', known.retryAfterSeconds);
      // As the listener does it.
      request.resume();
      response.writeHead(known?.code === 'unavailable' ? 503 : 400).end(known?.code ?? String(error));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
});
beforeEach(() => {
  lane = 'reserved';
  working = Promise.resolve();
  bodyBytes = 10_000;
  const ofSmall = { ofPart: 2_000, ofOrg: 4_000, ofAll: 16_000 };
  bodies = new Flight({ smallBytes: 1_000, ofPart: 10_000, ofOrg: 20_000, ofAll: 40_000, ofSmall });
  sharedBodies = new Flight({ smallBytes: 1_000, ofOrg: 10_000, ofAll: 10_000 });
  open({ bodies, sharedBodies });
});
afterEach(async () => {
  for (const sender of senders) sender.destroy();
  senders = [];
  await until('all is given back', () => bodies.bytes + bodies.smallBytes + sharedBodies.bytes === 0);
});
after(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

async function post(channel: string | null, bytes: number): Promise<string> {
  const answer = await fetch(
    `http://127.0.0.1:${port}/api/webhooks/slack${channel === null ? '' : `/${idOf(channel)}`}`,
    { method: 'POST', body: Buffer.alloc(bytes) },
  );
  const text = await answer.text();
  if (answer.status === 503) assert.ok(Number(answer.headers.get('retry-after')) > 0);
  return text;
}

/** Sends a body whose last byte never comes, and waits until the others are there. */
async function withhold(channel: string | null, bytes: number): Promise<void> {
  const sum = () => bodies.bytes + bodies.smallBytes + sharedBodies.bytes;
  const before = sum();
  const sender = connect(port, '127.0.0.1');
  sender.on('error', () => undefined);
  senders.push(sender);
  const path = `/api/webhooks/slack${channel === null ? '' : `/${idOf(channel)}`}`;
  sender.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${bytes + 1}\r\n\r\n`);
  sender.write(Buffer.alloc(bytes));
  await until('the body is there but for its last byte', () => sum() === before + bytes);
}

test('bodies whose last byte never comes fill the share of their channel, then of its organisation, and nobody else waits', async () => {
  await withhold('a1', 5_000);
  await withhold('a1', 5_000);
  assert.equal(await post('a1', 2_000), 'unavailable');
  assert.equal(await post('a1', 1_000), '1000');
  assert.equal(await post('a2', 10_000), '10000');
  await withhold('a2', 9_000);
  assert.equal(await post('a3', 2_000), 'unavailable');
  assert.equal(await post('a3', 1_000), '1000');
  assert.equal(await post('b1', 10_000), '10000');
  senders.shift()!.destroy();
  await until('one has gone', () => bodies.bytes === 14_000);
  assert.equal(await post('a3', 2_000), '2000');
});

test('small bodies have a bound of their own, by channel and by organisation, and leave large ones theirs', async () => {
  for (let count = 0; count < 2; count += 1) await withhold('a1', 900);
  assert.equal(await post('a1', 900), 'unavailable');
  assert.equal(await post('a2', 900), '900');
  for (let count = 0; count < 2; count += 1) await withhold('a2', 900);
  assert.equal(await post('a3', 900), 'unavailable');
  assert.equal(await post('b1', 900), '900');
  assert.equal(await post('b1', 9_000), '9000');
});

test('the largest body of a kind fits into the share of its channel, one at a time', async () => {
  bodyBytes = 15_000;
  assert.equal(await post('a1', 15_000), '15000');
  await withhold('a1', 14_000);
  assert.equal(await post('a1', 2_000), 'unavailable');
});

test('whoever sends again leaves the last tenth to those that never do', async () => {
  lane = 'ordinary';
  for (const channel of ['a1', 'a2', 'b1']) await withhold(channel, 9_500);
  await withhold('b2', 6_000);
  assert.equal(await post('c1', 2_000), 'unavailable');
  lane = 'reserved';
  assert.equal(await post('c1', 2_000), '2000');
});

test('what comes to the address that channels share takes nothing from theirs, nor they from it', async () => {
  await withhold(null, 9_000);
  assert.equal(await post(null, 2_000), 'unavailable');
  for (const channel of ['a1', 'a2', 'b1', 'b2']) assert.equal(await post(channel, 9_500), '9500');
  senders.pop()!.destroy();
  await until('it has gone', () => sharedBodies.bytes === 0);
  for (const channel of ['a1', 'a2', 'b1', 'b2']) await withhold(channel, 9_500);
  assert.equal(await post(null, 9_000), '9000');
});

test('with the usual limits ten deliveries of 10 MB of one organisation succeed in turn, while another fills its share', async () => {
  bodyBytes = 10 * 1024 * 1024;
  bodies = new Flight(limits.webhookBodies);
  open({ bodies, sharedBodies });
  for (const channel of ['b1', 'b1', 'b2', 'b2']) await withhold(channel, 10 * megabyte);
  for (let count = 0; count < 10; count += 1)
    assert.equal(await post(`a${count}`, 10 * megabyte), String(10 * megabyte));
  for (let count = 0; count < 10; count += 1)
    assert.equal(await post('a1', 10 * megabyte), String(10 * megabyte));
});

test('these are the limits when no others are given: ten in turn, and while two are worked on a third of the same channel waits', async () => {
  bodyBytes = 10 * 1024 * 1024;
  open();
  for (let count = 0; count < 10; count += 1)
    assert.equal(await post('a1', 10 * megabyte), String(10 * megabyte));
  const { promise, resolve } = Promise.withResolvers<void>();
  working = promise;
  const before = received;
  const held = [post('a1', 10 * megabyte), post('a1', 10 * megabyte)];
  try {
    await until('both are worked on', () => received === before + 2);
    assert.equal(await post('a1', 10 * megabyte), 'unavailable');
  } finally {
    resolve();
  }
  for (const text of await Promise.all(held)) assert.equal(text, String(10 * megabyte));
  assert.equal(await post('a1', 10 * megabyte), String(10 * megabyte));
});

test('an organisation has a quarter of the memory for deliveries, a channel less than that, and the largest body of each kind has room', () => {
  const { ofPart, ofOrg, ofAll, ofSmall, smallBytes } = limits.webhookBodies;
  assert.deepEqual([ofPart * 8, ofOrg * 4, ofAll], [ofAll, ofAll, 192 * 1024 * 1024]);
  assert.ok(ofSmall.ofOrg * 4 <= ofSmall.ofAll && ofSmall.ofPart < ofSmall.ofOrg);
  // A burst of honest ones at once.
  assert.ok(ofSmall.ofPart >= 300 * smallBytes);
  for (const kind of Object.values(kinds)) {
    const flight = new Flight(limits.webhookBodies);
    const bounds = { partId: 'channel', ofPartAtLeast: kind.bodyBytes, tenthsOfAll: 9 };
    flight.open('org', bounds).add(kind.bodyBytes);
  }
  new Flight(limits.sharedAppBodies).open('').add(kinds.slack.bodyBytes);
});
