import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { limits } from '../../src/domain/limits.ts';
import { createListener } from '../../src/edges/listener.ts';
import { inBytes } from '../support/chunks.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld, readReply } from '../support/edge-world.ts';
import { inTime, until } from '../support/until.ts';

/** Heartbeats would tell it after two of them. */
const SOON_MS = limits.sseHeartbeatMs;

let world: EdgeWorld;
let origin: string;
/** What `/raw/held` was asked by, when its client's side has ended, and whether the client was found to be gone. */
let held: { response: ServerResponse; isEnded: boolean; isGone: boolean } | null = null;
before(async () => {
  world = await edgeWorld();
  origin = await world.listen([
    {
      prefix: '/raw/',
      async handle(request, response) {
        if (request.url === '/raw/gone') throw new DomainError('not_found', 'Not found.');
        if (request.url === '/raw/broken') throw new Error('hunter2');
        if (request.url === '/raw/full') {
          // Amid the body, as a bound is met that others have filled.
          for await (const _ of request.iterator({ destroyOnReturn: false }))
            throw new DomainError('unavailable', 'Later.');
        }
        if (request.url === '/raw/held') {
          const mine = { response, isEnded: false, isGone: false };
          request.socket.once('end', () => (mine.isEnded = true));
          response.once('close', () => (mine.isGone = !response.writableFinished));
          held = mine;
          return;
        }
        let bytes = 0;
        let pieces = 0;
        request.on('data', (chunk: Buffer) => {
          bytes += chunk.length;
          pieces += 1;
        });
        await once(request, 'end');
        response.end(request.url === '/raw/pieces' ? `${bytes} ${pieces}` : String(bytes));
      },
    },
  ]);
});
after(() => world.close());

/** Writes bytes to the bare socket and gives back what comes until it is closed. */
function raw(text: string, keepWriting = ''): Promise<{ text: string; written: number }> {
  return new Promise((resolve) => {
    const { port } = new URL(origin);
    const socket = connect(Number(port), '127.0.0.1');
    let received = '';
    let written = 0;
    const more = () => {
      if (keepWriting === '') return;
      while (socket.writable && written < 512 * 1024 * 1024) {
        written += keepWriting.length;
        if (!socket.write(keepWriting)) return;
      }
    };
    socket.on('connect', () => {
      socket.write(text);
      more();
    });
    socket.on('drain', more);
    socket.on('data', (chunk) => (received += chunk.toString()));
    socket.on('error', () => {});
    socket.on('close', () => resolve({ text: received, written }));
  });
}

test('what is no HTTP, or a malformed host, gets a JSON answer with a request id', async () => {
  const bad = await raw('NONSENSE\r\n\r\n');
  assert.match(bad.text, /^HTTP\/1\.1 400 /);
  assert.match(bad.text, /X-Request-Id: [0-9a-f-]{36}/);
  assert.match(bad.text, /\{"error":"[^"]+","code":"invalid_request"\}$/);
  const host = await raw('GET /v1/agents HTTP/1.1\r\nHost: a b/c\r\nConnection: close\r\n\r\n');
  assert.match(host.text, /^HTTP\/1\.1 400 /);
  assert.match(host.text, /"code":"invalid_request"/);
  const large = await raw(`GET / HTTP/1.1\r\nHost: a\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`);
  assert.match(large.text, /^HTTP\/1\.1 431 /);
  assert.match(large.text, /"code":"invalid_request"/);
});

test('a head that says two things at once, names no host or expects what is not met is refused as JSON, and ends the connection', async () => {
  const get = (fields: string) => raw(`GET /v1/agents HTTP/1.1\r\n${fields}\r\n`);
  const key = `Authorization: Bearer ${world.keys.owner}\r\n`;
  for (const [fields, status] of [
    [`Host: a\r\nhost: b\r\n${key}`, 400],
    [`Host: a\r\n${key}AUTHORIZATION: Bearer other\r\n`, 400],
    [`Host: a\r\n${key}Idempotency-Key: 1\r\nIdempotency-Key: 2\r\n`, 400],
    [`Host: a\r\n${key}Content-Type: text/plain\r\nContent-Type: application/json\r\n`, 400],
    [`Host: a\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n`, 400],
    [key, 400],
    [`Host: a\r\n${key}Expect: a miracle\r\n`, 417],
  ] as const) {
    const { text } = await get(fields);
    assert.match(text, new RegExp(`^HTTP/1\\.1 ${status} `), fields);
    assert.match(text, /\r\nContent-Type: application\/json\r\n/, fields);
    assert.match(text, /\{"error":"[^"]+","code":"invalid_request"\}$/, fields);
    assert.ok(!text.includes(world.keys.owner));
  }
  const once = await get(`Host: a\r\n${key}Connection: close\r\n`);
  assert.match(once.text, /^HTTP\/1\.1 200 /);
});

test('a body in pieces of one byte reaches a mount whole, in few pieces', async () => {
  const body = 'abcdefghij'.repeat(6_000);
  const { text } = await raw(
    `POST /raw/pieces HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n${inBytes(body)}`,
  );
  const [bytes, pieces] = text.slice(text.indexOf('\r\n\r\n') + 4).split(' ');
  assert.equal(Number(bytes), body.length);
  assert.ok(Number(pieces) < 600, `${pieces} pieces`);
});

test('requests that come at once are answered in order, by the app, a mount and what is known before', async () => {
  const heads = ['GET /healthz', 'GET /raw/x', 'GET /v1/agents', 'GET /healthz', 'GET /nix'];
  const last = 'GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';
  const { text } = await raw(heads.map((one) => `${one} HTTP/1.1\r\nHost: a\r\n\r\n`).join('') + last);
  const statuses = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));
  assert.deepEqual(statuses, [200, 200, 401, 200, 404, 200]);
});

test('a client of HTTP/1.0 need not name a host', async () => {
  for (const path of ['/healthz', '/v1/limits', `/v1/agents/${world.agent.id}`, '/raw/x']) {
    const { text } = await raw(`GET ${path} HTTP/1.0\r\nAuthorization: Bearer ${world.keys.owner}\r\n\r\n`);
    assert.match(text, /^HTTP\/1\.1 200 /, `${path}: ${text}`);
  }
});

test('413 for an endless chunked body, without reading it all', async () => {
  const head =
    `POST /v1/agents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${world.keys.owner}\r\n` +
    'Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n';
  const chunk = `10000\r\n${'a'.repeat(65_536)}\r\n`;
  const { text, written } = await raw(head, chunk);
  assert.match(text, /^HTTP\/1\.1 413 /);
  assert.match(text, /"code":"body_too_large"/);
  assert.ok(written < 512 * 1024 * 1024, `${written} bytes were taken`);
});

test('413 for a declared length over the limit, before any of the body has come', async () => {
  const reply = await new Promise<number>((resolve, reject) => {
    const req = request(`${origin}/v1/agents`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${world.keys.owner}`,
        'content-type': 'application/json',
        'content-length': '1048577',
      },
    });
    req.on('error', reject);
    req.on('response', (response) => {
      response.resume();
      resolve(response.statusCode!);
      req.destroy();
    });
    req.flushHeaders();
  });
  assert.equal(reply, 413);
});

test('a client that wants its connection closed gets the whole answer, also when its body was refused', async () => {
  const body = Buffer.alloc(7 * 1024 * 1024, 'a');
  for (let round = 0; round < 10; round += 1) {
    const reply = await new Promise<string>((resolve, reject) => {
      const sent = request(
        `${origin}/v1/agents`,
        {
          method: 'POST',
          agent: false,
          headers: {
            authorization: `Bearer ${world.keys.owner}`,
            'content-type': 'application/json',
            'content-length': String(body.length),
            connection: 'close',
          },
        },
        (response) => {
          let text = '';
          response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
          response.on('end', () => resolve(`${response.statusCode} ${text}`)).on('error', reject);
        },
      );
      sent.on('error', reject);
      sent.end(body);
    });
    assert.match(reply, /^413 .*"code":"body_too_large"/);
  }
});

test('one that sends nothing more is not waited for long, and one that sends without end is cut off', async () => {
  const head =
    `POST /v1/agents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${world.keys.owner}\r\n` +
    'Content-Type: application/json\r\nConnection: close\r\n';
  const silent = await raw(`${head}Content-Length: 9000000\r\n\r\nabc`);
  assert.match(silent.text, /^HTTP\/1\.1 413 /);
  const endless = await raw(
    `${head}Transfer-Encoding: chunked\r\n\r\n`,
    `10000\r\n${'a'.repeat(65_536)}\r\n`,
  );
  assert.match(endless.text, /^HTTP\/1\.1 413 /);
  assert.ok(endless.written < 512 * 1024 * 1024, `${endless.written} bytes were taken`);
});

/** Sends a request and ends its own side at once, as `nc -N` does; gives what has come. */
function halfClosed(head: string) {
  const socket = connect({ port: Number(new URL(origin).port), host: '127.0.0.1', allowHalfOpen: true });
  const heard = { text: '', socket, closed: Promise.withResolvers<string>() };
  socket.on('data', (chunk) => (heard.text += chunk.toString()));
  socket.on('error', () => {});
  socket.on('end', () => heard.closed.resolve(heard.text));
  socket.end(head);
  return heard;
}

const keyed = (version = '1.1') =>
  `HTTP/${version}\r\nHost: localhost\r\nAuthorization: Bearer ${world.keys.owner}\r\n`;

/** The id of a run that has begun. */
async function begun(): Promise<string> {
  const sent = await fetch(`${origin}/api/v1/chat/send`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${world.keys.owner}`,
      'content-type': 'application/json',
      prefer: 'respond-async',
    },
    body: JSON.stringify({ agentId: world.agent.id, content: 'x' }),
  });
  return ((await sent.json()) as { runId: string }).runId;
}

test('a client that ends its side after its request gets the answer, at once, later and as a stream, and then the end', async () => {
  const atOnce = await halfClosed(`GET /v1/agents ${keyed()}\r\n`).closed.promise;
  assert.match(atOnce, /HTTP\/1\.1 200 OK\r\n.*"agents":\[/s);

  held = null;
  const later = halfClosed(`GET /raw/held ${keyed()}\r\n`);
  const mine = await until('the end of its side is known', () => (held?.isEnded ? held : null));
  mine.response.end('here');
  assert.match(
    await later.closed.promise,
    /^(HTTP\/1\.1 102 Processing\r\n\r\n)+HTTP\/1\.1 200 OK\r\n.*here/s,
  );

  const runId = await begun();
  const path = `/v1/runs/${runId}/events`;
  const stream = halfClosed(`GET ${path} ${keyed()}Accept: text/event-stream\r\n\r\n`);
  await until('it is followed', () => stream.text.includes('event: run.queued'));
  world.core.settle(runId, { message: 'the end' });
  assert.match(await stream.closed.promise, /event: run\.completed/);
});

test('a client that has gone is noticed all the same: while it waits, within a stream, and one of HTTP/1.0 by its end alone', async () => {
  held = null;
  const waiting = connect(Number(new URL(origin).port), '127.0.0.1');
  waiting.write(`GET /raw/held ${keyed()}\r\n`);
  const mine = await until('it waits', () => held);
  assert.equal(mine.isGone, false);
  waiting.destroy();
  await until('nobody waits any more', () => mine.isGone);

  const runId = await begun();
  const follower = connect(Number(new URL(origin).port), '127.0.0.1');
  follower.write(`GET /v1/runs/${runId}/events ${keyed()}Accept: text/event-stream\r\n\r\n`);
  await once(follower, 'data');
  await until('it is followed', () => world.core.followers.size === 1);
  follower.destroy();
  await until('nobody follows any more', () => world.core.followers.size === 0, SOON_MS);

  held = null;
  const old = halfClosed(`GET /raw/held ${keyed('1.0')}\r\n`);
  const its = await until('it was asked', () => held);
  await until('its end is its leave', () => its.isGone);
  old.socket.destroy();
});

test('a body read from the connection is checked like any other', async () => {
  const post = async (body: string, type = 'application/json') => {
    const response = await fetch(`${origin}/v1/agents`, {
      method: 'POST',
      headers: { authorization: `Bearer ${world.keys.owner}`, 'content-type': type },
      body,
    });
    return readReply(response);
  };
  assert.equal((await post('{"name":"A"}')).status, 201);
  assert.equal((await post('{"name":')).status, 400);
  assert.equal((await post('{"name":"A"}', 'text/plain')).status, 415);
  const empty = await post('');
  assert.deepEqual([empty.status, (empty.json as { error: string }).error], [400, 'name: required']);
});

test('a mount gets the bare request without a body limit, and its errors become JSON', async () => {
  const big = await fetch(`${origin}/raw/up`, { method: 'POST', body: 'a'.repeat(3 * 1024 * 1024) });
  assert.equal(await big.text(), String(3 * 1024 * 1024));
  assert.ok(big.headers.get('x-request-id'));
  const gone = await fetch(`${origin}/raw/gone`);
  assert.deepEqual([gone.status, await gone.text()], [404, '{"error":"Not found.","code":"not_found"}']);
  const broken = await fetch(`${origin}/raw/broken`);
  assert.equal(broken.status, 500);
  assert.ok(!(await broken.text()).includes('hunter2'));
});

test('closing lets a request under way finish and takes no new one', async () => {
  const other = await edgeWorld();
  const address = await other.listen();
  const { agent, keys, core } = other;
  const before = core.sends.length;
  const reply = fetch(`${address}/api/v1/chat/send`, {
    method: 'POST',
    headers: { authorization: `Bearer ${keys.use}`, 'content-type': 'application/json' },
    body: JSON.stringify({ agentId: agent.id, content: 'x' }),
  });
  await until('it is accepted', () => core.sends.length > before);
  const closed = other.listener().close(600_000);
  const [run] = (await core.runs.listForAgent(other.resources.owner, agent.id, { limit: 1, cursor: null }))
    .items;
  core.settle(run!.id, { message: 'hi' });
  assert.equal((await reply).status, 200);
  await inTime('it has closed, and no idle connection is waited for', closed);
  await assert.rejects(fetch(`${address}/healthz`));
  await other.close();
});

test('a connection that is taken over while the listener closes does not hold it', async () => {
  const other = await edgeWorld();
  const taken = Promise.withResolvers<void>();
  const listener = createListener(other.app, [], undefined, [
    {
      matches: (asked) => asked.url === '/taken',
      handle: async () => taken.resolve(),
      close: () => undefined,
    },
  ]);
  const { port } = await listener.listen(0, '127.0.0.1');
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  // Its head has begun, so that it is not idle.
  socket.write('GET /taken HTTP/1.1\r\nHost: a\r\n');
  await once(listener.server, 'connection');
  const closed = listener.close(1_000);
  socket.write('Connection: upgrade\r\nUpgrade: websocket\r\n\r\n');
  await inTime('it is taken over', taken.promise);
  await inTime('it has closed', closed, 20_000);
  await other.close();
});

test('a body that is refused in the middle is read to its end, so that its sender sees the answer and goes on with the connection', async () => {
  const body = 'x'.repeat(10_000_000);
  const { text } = await inTime(
    'it is answered',
    raw(
      `POST /raw/full HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}` +
        'POST /raw/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc',
    ),
  );
  assert.match(text, /^HTTP\/1.1 503 [^]*HTTP\/1.1 200 [^]*\r\n3$/);
});

test('a client that has gone is noticed also when it sent something behind its request', async () => {
  for (const behind of ['\r\n', 'GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n']) {
    held = null;
    const { port } = new URL(origin);
    const socket = connect(Number(port), '127.0.0.1');
    socket.write(`GET /raw/held HTTP/1.1\r\nHost: x\r\n\r\n${behind}`);
    const mine = await until('it is asked', () => held);
    socket.destroy();
    await until('it is found to be gone', () => mine.isGone);
  }
});

test('it is noticed within a stream as well, and for each of its requests in turn', async () => {
  const { port } = new URL(origin);
  const runId = await begun();
  const events = `GET /v1/runs/${runId}/events ${keyed()}Accept: text/event-stream\r\n\r\n\r\n`;
  const follower = connect(Number(port), '127.0.0.1');
  let seen = '';
  follower.on('data', (chunk) => (seen += chunk.toString()));
  follower.write(events);
  await until('its events are there', () => seen.includes('event: run.queued'));
  await until('it is followed', () => world.core.followers.size === 1);
  follower.destroy();
  await until('nobody follows any more', () => world.core.followers.size === 0, SOON_MS);

  held = null;
  // One each time that the loop comes round, so that the end of its side is there before the last is asked.
  const patient = halfClosed(`${`GET /healthz ${keyed()}\r\n`.repeat(5)}GET /raw/held ${keyed()}\r\n\r\n`);
  const mine = await until('the last is asked', () => held);
  await until('it is asked whether it is there', () => patient.text.includes('102 Processing'));
  patient.socket.destroy();
  await until('it is found to be gone', () => mine.isGone);
});
