import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { routes } from '../../src/edges/routes.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';
import { until } from '../support/until.ts';

let world: EdgeWorld;
before(async () => void (world = await edgeWorld()));
after(() => world.close());

test('the pages need no key, run no script, load nothing, and say so by policy', async () => {
  for (const path of ['/', '/docs']) {
    const { status, headers, text } = await world.call('GET', path, { key: null });
    assert.equal(status, 200);
    assert.equal(headers.get('content-type'), 'text/html; charset=utf-8');
    const style = /<style>([\s\S]*?)<\/style>/.exec(text)![1]!;
    const hash = createHash('sha256').update(style).digest('base64');
    const policy = headers.get('content-security-policy')!;
    assert.ok(policy.startsWith("default-src 'none'; "));
    assert.ok(policy.includes(`style-src 'sha256-${hash}'`));
    assert.ok(policy.includes("frame-ancestors 'none'"));
    assert.equal(headers.get('x-frame-options'), 'DENY');
    assert.ok(!/<script|<img|<link|<iframe|style="|\bon\w+="|url\(|@import|src=/i.test(text));
  }
});

test('the reference shows every call, and every link inside it leads somewhere', async () => {
  const { text } = await world.call('GET', '/docs', { key: null });
  for (const route of routes) {
    assert.ok(text.includes(`id="${route.id}"`), route.id);
    assert.ok(text.includes(route.path), route.path);
  }
  for (const [, target] of text.matchAll(/href="#([^"]+)"/g))
    assert.ok(text.includes(`id="${target}"`), target);
  assert.ok(!text.includes('undefined') && !text.includes('[object'));
});

test('/healthz, /openapi.json and /metrics answer without a key', async () => {
  assert.deepEqual((await world.call('GET', '/healthz', { key: null })).json, { status: 'ok' });
  const openapi = (await world.call('GET', '/openapi.json', { key: null })).json as { openapi: string };
  assert.equal(openapi.openapi, '3.1.0');
  await world.call('GET', `/v1/agents/${world.agent.id}`);
  const { text, headers } = await world.call('GET', '/metrics', { key: null });
  assert.match(headers.get('content-type')!, /^text\/plain; version=0\.0\.4/);
  assert.match(
    text,
    /berth_http_requests_total\{method="GET",route="\/v1\/agents\/\{id\}",status="200"\} 1\n/,
  );
  assert.match(text, /berth_http_request_seconds_count\{method="GET",route="\/v1\/agents\/\{id\}"\} 1\n/);
  assert.match(text, /^berth_event_streams_open 0$/m);
  for (const line of text.trim().split('\n')) {
    assert.match(line, /^(# (HELP|TYPE) .+|[a-z0-9_]+(\{.*\})? [0-9.e+-]+)$/, line);
  }
});

test('/readyz gives the reasons why not', async () => {
  const away = await edgeWorld({ app: { probe: async () => ['The database does not answer.'] } });
  try {
    const reply = await away.call('GET', '/readyz', { key: null });
    assert.deepEqual(reply.json, { error: 'The database does not answer.', code: 'unavailable' });
    assert.equal(reply.status, 503);
  } finally {
    await away.close();
  }
});

test('what does not change is written to every connection from the same bytes, apart from the head', async (t) => {
  const port = Number(new URL(await world.listen()).port);
  const written = new Map<Socket, unknown[]>();
  const onConnection = (socket: Socket) => {
    const chunks: unknown[] = [];
    written.set(socket, chunks);
    const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
    socket.write = ((...args: unknown[]) => {
      chunks.push(args[0]);
      return write(...args);
    }) as Socket['write'];
  };
  world.listener().server.on('connection', onConnection);
  t.after(() => world.listener().server.off('connection', onConnection));
  for (const path of ['/', '/docs', '/openapi.json', '/openapi-agent-host.json']) {
    written.clear();
    for (let count = 0; count < 2; count += 1) {
      const client = connect(port, '127.0.0.1');
      t.after(() => client.destroy());
      client.resume();
      client.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    }
    const large = () =>
      [...written.values()].map((chunks) => chunks.filter((chunk) => String(chunk).length > 1_000));
    const [first, second] = await until('both are answered', () => {
      const all = large();
      return all.length === 2 && all.every((chunks) => chunks.length > 0) ? all : null;
    });
    assert.ok(Buffer.isBuffer(first![0]), path);
    assert.deepEqual([first!.length, second!.length], [1, 1], path);
    assert.equal(first![0], second![0], path);
  }
});
