import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, get } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { streamAnswer } from '../../src/edges/a2a/sse.ts';
import type { HostCall } from '../../src/edges/hosts/host-edge.ts';
import { createStreams } from '../../src/edges/http/stream.ts';
import { until } from '../support/until.ts';

/** The writes by which a stream of these events leaves, and what arrives. */
async function streamed(texts: string[]): Promise<{ writes: number; body: string }> {
  const streams = createStreams({ heartbeatMs: 60_000, maxUnreadBytes: 1024 * 1024 });
  let writes = 0;
  async function* items() {
    for (const data of texts) yield { seq: 0, data };
  }
  const server = createServer((_request, response) => {
    const { write, end } = response;
    response.write = (...given: unknown[]) => {
      writes += 1;
      return Reflect.apply(write, response, given) as boolean;
    };
    response.end = (...given: unknown[]) => {
      writes += 1;
      return Reflect.apply(end, response, given) as typeof response;
    };
    const call: Pick<HostCall, 'stream'> = {
      stream: (frame, begin) => streams.open(response, {}, begin, frame),
    };
    const stop = () => undefined;
    void streamAnswer(call as HostCall, items(), stop, String);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const request = get({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', agent: false });
    const [response] = await once(request, 'response');
    response.setEncoding('utf8');
    let body = '';
    for await (const chunk of response) body += chunk;
    return { writes, body };
  } finally {
    server.close();
  }
}

test('events of a stream that are there together leave in one write with its end', async () => {
  const { writes, body } = await streamed(['a', 'b', 'c']);
  assert.equal(body, 'data: "a"\n\ndata: "b"\n\ndata: "c"\n\n');
  assert.equal(writes, 1);
});

test('a long past is not collected for one write: it leaves in pieces, and arrives whole', async () => {
  const texts = Array.from({ length: 40 }, (_, index) => `${index} ${'x'.repeat(20_000)}`);
  const { writes, body } = await streamed(texts);
  assert.equal(body, texts.map((text) => `data: ${JSON.stringify(text)}\n\n`).join(''));
  assert.ok(writes >= 10, `${writes} writes`);
});

test('events that nobody reads any more are left where they are, by whoever makes them', async () => {
  const streams = createStreams({ heartbeatMs: 60_000, maxUnreadBytes: 1024 * 1024 });
  const left = Promise.withResolvers<string>();
  const waiting = Promise.withResolvers<void>();
  async function* items() {
    try {
      for (;;) yield { seq: 0, data: 'x'.repeat(100_000) };
    } finally {
      left.resolve('left');
    }
  }
  const server = createServer((_request, response) => {
    const { on } = response;
    response.on = (event: string, ...given: unknown[]) => {
      if (event === 'drain') waiting.resolve();
      return Reflect.apply(on, response, [event, ...given]) as typeof response;
    };
    const call: Pick<HostCall, 'stream'> = {
      stream: (frame, begin) => streams.open(response, {}, begin, frame),
    };
    void streamAnswer(call as HostCall, items(), () => undefined, String);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const request = get({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', agent: false });
    request.on('error', () => undefined);
    const [response] = await once(request, 'response');
    response.on('error', () => undefined);
    await waiting.promise;
    request.destroy();
    assert.equal(await left.promise, 'left');
  } finally {
    server.close();
  }
});

test('events of which one cannot be told are left by whoever makes them too', async () => {
  const left = Promise.withResolvers<string>();
  async function* items() {
    try {
      yield { seq: 0, data: 'a' };
      yield { seq: 0, data: 1n };
    } finally {
      left.resolve('left');
    }
  }
  const told: string[] = [];
  const sink = { raw: (text: string) => told.push(text), end: () => told.push('end') };
  const call = {
    stream: async (_frame: unknown, begin: (to: unknown) => Promise<unknown>) => void (await begin(sink)),
  };
  await streamAnswer(
    call as unknown as HostCall,
    items(),
    () => undefined,
    () => 'told',
  );
  assert.equal(await left.promise, 'left');
  await until('it has ended', () => told.at(-1) === 'end');
  assert.deepEqual(told, ['data: "a"\n\n', 'told', 'end']);
});
