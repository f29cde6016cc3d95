import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { test } from 'node:test';
import { GatewayClient } from '../src/http.ts';
import { Model } from '../src/model.ts';
import type { Host, RetryPolicy } from '../src/model.ts';
import { openaiChatWire } from '../src/wire-openai.ts';
import { ModelError } from '../src/wire.ts';

const unreachable = (response: ServerResponse) => {
  const error = {
    message: 'The model provider cannot be reached (ENOTFOUND).',
    code: 'provider_unreachable',
  };
  response.writeHead(502, { 'content-type': 'application/json' }).end(JSON.stringify({ error }));
};
const overloaded = (response: ServerResponse) => void response.writeHead(503).end('{}');
const answers = (response: ServerResponse) => {
  const chunk = { choices: [{ index: 0, delta: { content: 'hello' }, finish_reason: 'stop' }] };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`);
};

/** A model behind a gateway that does these things in order, the last one ever after. */
async function modelOf(
  t: TestContext,
  script: ((response: ServerResponse) => void)[],
  retry: RetryPolicy,
  away: Partial<Host> = {},
) {
  const dir = mkdtempSync(join(tmpdir(), 'berth-g-'));
  chmodSync(dir, 0o755);
  const socket = join(dir, 'gateway.sock');
  const asked = { count: 0 };
  const server = createServer((request, response) => {
    request.resume();
    script[Math.min(asked.count, script.length - 1)]!(response);
    asked.count += 1;
  });
  server.listen(socket);
  await once(server, 'listening');
  const gateway = new GatewayClient(socket, 10);
  t.after(() => {
    gateway.close();
    server.close();
    rmSync(dir, { recursive: true });
  });
  const host = { connections: 1, back: async () => undefined, wasAway: async () => false, ...away };
  const model = new Model({
    gateway,
    wire: openaiChatWire,
    provider: 'openai',
    model: 'm',
    token: 't',
    retry,
    host,
  });
  const call = () =>
    model.call({
      system: '',
      tools: '',
      encoded: [openaiChatWire.encode({ role: 'user', text: 'hi' })],
      sessionId: 's',
      signal: new AbortController().signal,
      sink: { text: () => undefined, thought: () => undefined },
    });
  return { call, asked, gateway, socket };
}

const soon = { baseMs: 1, maxMs: 1, shutMs: 60_000 };

test('a provider that was never reached fails the call in bounded time, with its reason and for how long it was tried', async (t) => {
  // So many attempts that only the time can end them.
  const retry = { ...soon, attempts: 1_000_000, unreachable: { firstMs: 50, laterMs: 600_000 } };
  const { call, asked } = await modelOf(t, [unreachable], retry);
  await assert.rejects(call(), (error) => {
    assert.ok(error instanceof ModelError);
    assert.match(
      error.message,
      /^The model provider cannot be reached \(ENOTFOUND\)\. It was tried for \d+ s; look at/,
    );
    return true;
  });
  assert.ok(asked.count >= 1);
});

test('one that has answered before is tried for longer, and one that answers with an error is not held to that time', async (t) => {
  const retry = { ...soon, attempts: 1_000_000, unreachable: { firstMs: 0, laterMs: 600_000 } };
  const away = Array.from({ length: 20 }, () => unreachable);
  const later = await modelOf(t, [answers, ...away, answers], retry);
  assert.equal((await later.call()).text, 'hello');
  assert.equal((await later.call()).text, 'hello');
  assert.equal(later.asked.count, 22);

  const busy = await modelOf(t, [overloaded, overloaded, answers], retry);
  assert.equal((await busy.call()).text, 'hello');
});

/** Nobody may connect to it. To root nothing is shut: it is somebody else for that time. */
function shut(socket: string) {
  const isRoot = process.geteuid!() === 0;
  chmodSync(socket, 0);
  if (isRoot) process.seteuid!(65_534);
  return {
    open() {
      if (isRoot) process.seteuid!(0);
      chmodSync(socket, 0o666);
    },
  };
}

test('a gateway that is shut for a while is waited for, which counts as no attempt, and in the end fails the call', async (t) => {
  const retry = { ...soon, attempts: 1, unreachable: { firstMs: 0, laterMs: 0 } };
  const { call, asked, gateway, socket } = await modelOf(t, [answers], retry);
  const post = gateway.post.bind(gateway);
  const door = shut(socket);
  try {
    let refused = 0;
    gateway.post = (request) =>
      post(request).catch((error: unknown) => {
        if (error instanceof ModelError && error.isShut && ++refused === 3) door.open();
        throw error;
      });
    assert.equal((await call()).text, 'hello');
    assert.deepEqual([refused, asked.count], [3, 1]);
  } finally {
    door.open();
  }

  const never = await modelOf(t, [answers], { ...retry, shutMs: 0 });
  const shutForGood = shut(never.socket);
  try {
    await assert.rejects(never.call(), /The model gateway lets nobody in \(connect EACCES/);
    assert.equal(never.asked.count, 0);
  } finally {
    shutForGood.open();
  }
});

test('a gateway that a killed service left shut is waited for until the service is back', async (t) => {
  const retry = { ...soon, attempts: 1, shutMs: 0, unreachable: { firstMs: 0, laterMs: 0 } };
  let door: ReturnType<typeof shut> | null = null;
  const back = async () => door!.open();
  const { call, asked, socket } = await modelOf(t, [answers], retry, { back, wasAway: async () => true });
  door = shut(socket);
  try {
    assert.equal((await call()).text, 'hello');
    assert.equal(asked.count, 1);
  } finally {
    door.open();
  }
});

test('the wait for a gateway counts from when it was found shut, however long the call has lasted', async (t) => {
  const retry = { ...soon, attempts: 2, shutMs: 50, unreachable: { firstMs: 0, laterMs: 0 } };
  const waits = { door: null as ReturnType<typeof shut> | null };
  const slow = (response: ServerResponse) =>
    void setTimeout(() => {
      waits.door = shut(socket);
      // The next one comes over a connection of its own.
      response.setHeader('connection', 'close');
      overloaded(response);
    }, 100);
  const { call, asked, gateway, socket } = await modelOf(t, [slow, answers], retry);
  const post = gateway.post.bind(gateway);
  let refused = 0;
  gateway.post = (request) =>
    post(request).catch((error: unknown) => {
      if (error instanceof ModelError && error.isShut && ++refused === 1) waits.door!.open();
      throw error;
    });
  try {
    assert.equal((await call()).text, 'hello');
    assert.deepEqual([refused, asked.count], [1, 2]);
  } finally {
    waits.door?.open();
  }
});
