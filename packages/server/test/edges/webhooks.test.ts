import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { notFound } from '../../src/domain/errors.ts';
import type { InboundRequest } from '../../src/domain/ports/channel.ts';
import { createWebhookEdge } from '../../src/edges/webhooks.ts';
import { DomainError } from '../../src/domain/errors.ts';
import { until } from '../support/until.ts';

const id = '01999999-0000-7000-8000-00000000c4a1';
const taken: InboundRequest[] = [];
const refused: unknown[] = [];
const signals: (AbortSignal | undefined)[] = [];
/** Whether the sender never sends again. */
let isReserved = false;
/** Set while forgeries come in. */
let hurry: { hurriedBytes?: number } = {};
let server: Server;
let url: string;

before(async () => {
  const edge = createWebhookEdge({
    baseUrl: 'https://berth.example',
    inbox: {
      async admit(kind, channelId) {
        if (kind !== 'slack' || channelId === '') throw notFound();
        const lane = () => (isReserved ? ('reserved' as const) : ('ordinary' as const));
        return { orgId: 'org', bodyBytes: 1_000, methods: ['POST'], whenBusy: 503 as const, lane, ...hurry };
      },
      async receive(_kind, _channelId, request, gone) {
        taken.push(request);
        signals.push(gone);
        if (request.url.endsWith('?waits'))
          await new Promise((_, reject) => gone?.addEventListener('abort', reject));
        return { status: 200, headers: { 'content-type': 'text/plain' }, body: 'grüß' };
      },
    },
  });
  server = createServer((request, response) => {
    edge.handle(request, response).catch((error: unknown) => {
      refused.push(error);
      const code = error instanceof DomainError ? error.code : String(error);
      response.writeHead(400, { connection: 'close' }).end(code);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const post = (path: string, init: RequestInit = {}) =>
  fetch(url + path, { method: 'POST', body: 'x', ...init });

test('a webhook gets the raw bytes, the URL as its sender sees it, and the answer of the inbox', async () => {
  const body = Buffer.from([0, 255, 128, 10]);
  const answer = await post(`/api/webhooks/slack/${id}?a=1`, { body, headers: { 'X-Test': 'One' } });
  assert.equal(await answer.text(), 'grüß');
  assert.equal(answer.headers.get('content-length'), '6');
  const request = taken.at(-1)!;
  assert.deepEqual(request.body, body);
  assert.equal(request.url, `https://berth.example/api/webhooks/slack/${id}?a=1`);
  assert.equal(request.headers.get('x-test'), 'One');
});

test('other paths, kinds and methods are refused before a body is read', async () => {
  for (const path of [
    '/api/webhooks/',
    '/api/webhooks/slack',
    '/api/webhooks/slack/x',
    `/api/webhooks/fax/${id}`,
    `/api/webhooks/slack/${id}/more`,
  ]) {
    assert.equal(await (await post(path)).text(), 'not_found', path);
  }
  const wrong = await fetch(`${url}/api/webhooks/slack/${id}`);
  assert.deepEqual([await wrong.text(), wrong.headers.get('allow')], ['method_not_allowed', 'POST']);
});

test('a body that is too large is refused, whether its length is told or not', async () => {
  const before = taken.length;
  assert.equal(
    await (await post(`/api/webhooks/slack/${id}`, { body: 'x'.repeat(1_001) })).text(),
    'body_too_large',
  );
  const chunks = new ReadableStream({
    start(controller) {
      for (let index = 0; index < 3; index += 1) controller.enqueue(Buffer.alloc(500));
      controller.close();
    },
  });
  const init = { body: chunks, duplex: 'half' } as RequestInit;
  assert.equal(await (await post(`/api/webhooks/slack/${id}`, init)).text(), 'body_too_large');
  assert.equal(taken.length, before);
});

test('while forgeries come in a larger body has to wait, and is not read', async () => {
  const path = `/api/webhooks/slack/${id}`;
  const before = taken.length;
  hurry = { hurriedBytes: 500 };
  try {
    assert.equal(await (await post(path, { body: 'x'.repeat(501) })).text(), 'unavailable');
    assert.equal(await (await post(path, { body: 'x'.repeat(1_001) })).text(), 'body_too_large');
    const chunks = new Blob(['x'.repeat(300), 'x'.repeat(300)]).stream();
    assert.equal(
      await (await post(path, { body: chunks, duplex: 'half' } as RequestInit)).text(),
      'unavailable',
    );
    assert.equal(taken.length, before);
    assert.equal(await (await post(path, { body: 'x'.repeat(500) })).text(), 'grüß');
  } finally {
    hurry = {};
  }
});

test('that a sender goes amid its body is told as its own doing, not as a fault of the service', async () => {
  const heads = ['Content-Length: 20', 'Transfer-Encoding: chunked'];
  for (const head of heads) {
    const before = refused.length;
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write(
      `POST /api/webhooks/slack/${id} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n${head}\r\n\r\n`,
    );
    // The service has begun to read.
    await new Promise((resolve) => socket.once('data', resolve));
    socket.write(head.startsWith('C') ? '{"half' : '6\r\n{"half\r\n');
    socket.resetAndDestroy();
    const error = await until('it is refused', () => refused[before]);
    assert.ok(error instanceof DomainError, String(error));
    assert.deepEqual(
      [error.code, error.message],
      ['invalid_request', 'The body ended before it was complete.'],
    );
  }
});

test('what waits of a sender that has gone is let go, unless it never sends again', async () => {
  const leaving = new AbortController();
  const before = taken.length;
  const left = post(`/api/webhooks/slack/${id}?waits`, { signal: leaving.signal });
  await until('it waits', () => taken.length > before);
  const failures = refused.length;
  assert.equal(signals.at(-1)!.aborted, false);
  leaving.abort();
  await assert.rejects(left);
  await until('it is let go', () => refused.length > failures);
  isReserved = true;
  assert.equal((await post(`/api/webhooks/slack/${id}`)).status, 200);
  isReserved = false;
  assert.equal(signals.at(-1), undefined);
});
