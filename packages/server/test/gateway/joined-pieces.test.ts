import { deepEqual, equal, ok } from 'node:assert/strict';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { PieceJoiner } from '../../src/gateway/piece-joiner.ts';
import { TokenScan } from '../../src/gateway/token-scan.ts';
import { operatorKey, sandboxToken, startGateway } from '../support/gateway.ts';
import type { GatewayAnswer, TestGateway } from '../support/gateway.ts';
import { inTime, until } from '../support/until.ts';

const joinMs = 25;
const joinOfManyMs = 60;
const maxBytes = 16 * 1024;

function recorder(t: TestContext) {
  const written: string[][] = [];
  const joiner = new PieceJoiner((pieces) => void written.push(pieces.map(String)));
  t.after(() => joiner.close());
  const push = (text: string, mayWait: boolean): void => joiner.push(Buffer.from(text), mayWait);
  return { joiner, written, push };
}

test('what may not wait is handed on in the same turn, and what comes right after it waits and is joined', async (t) => {
  const { written, push } = recorder(t);
  push('first', false);
  const sinceMs = performance.now();
  await turn();
  deepEqual(written, [['first']]);
  push('a', true);
  push('b', true);
  await turn();
  const waited = written.length === 1;
  // A machine that stood still for so long has nothing to join.
  ok(waited || performance.now() - sinceMs >= joinMs);
  await until('what waited is handed on', () => written.length === 2);
  deepEqual(written[1], ['a', 'b']);
});

test('what waits is handed on later while eight answers or more are under way, and sooner when they are fewer again', async (t) => {
  const others = Array.from({ length: 7 }, () => new PieceJoiner(() => {}));
  t.after(() => others.forEach((joiner) => joiner.close()));
  const { written, push } = recorder(t);
  const waitMs = async (): Promise<number> => {
    const before = written.length;
    const sinceMs = performance.now();
    push('first', false);
    await turn();
    push('a', true);
    await until('what waited is handed on', () => written.length === before + 2);
    return performance.now() - sinceMs;
  };
  ok((await waitMs()) >= joinOfManyMs - 2);
  others.pop()!.close();
  // The machine may be slow in some.
  let shortestMs = Infinity;
  for (let tries = 0; tries < 50 && shortestMs >= joinOfManyMs - 2; tries += 1)
    shortestMs = Math.min(shortestMs, await waitMs());
  ok(shortestMs < joinOfManyMs - 2, `${shortestMs} ms`);
});

test('what may not wait takes along what waits, in order', async (t) => {
  const { written, push } = recorder(t);
  push('first', false);
  await turn();
  push('a', true);
  push('new', false);
  await turn();
  deepEqual(written.flat(), ['first', 'a', 'new']);
});

test('a piece that comes after a pause passes at once', async (t) => {
  const { written, push } = recorder(t);
  push('first', false);
  await turn();
  const sinceMs = performance.now();
  await until('the pause is over', () => performance.now() - sinceMs > joinMs);
  push('later', true);
  await turn();
  deepEqual(written, [['first'], ['later']]);
});

test('never more than 16 KiB wait, and what is taken out is not written again', async (t) => {
  const { joiner, written, push } = recorder(t);
  push('first', false);
  await turn();
  push('x'.repeat(maxBytes - 1), true);
  push('y', true);
  equal(written.at(-1)?.join('').length, maxBytes);
  push('rest', false);
  deepEqual(joiner.take().map(String), ['rest']);
  push('next', false);
  await turn();
  equal(written.length, 3);
  deepEqual(written[2], ['next']);
});

const events = {
  begin: { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  thought: (thinking: string) => ({
    type: 'content_block_delta',
    delta: { type: 'thinking_delta', thinking },
  }),
  text: (text: string) => ({ type: 'content_block_delta', delta: { type: 'text_delta', text } }),
  arguments: (partial_json: string) => ({
    type: 'content_block_delta',
    delta: { type: 'input_json_delta', partial_json },
  }),
};
const sse = (data: unknown): Buffer => Buffer.from(`data: ${JSON.stringify(data)}\n\n`);

test('the first text, the first after reasoning, the first arguments of a tool and the end may not wait, more of each may', () => {
  const scan = new TokenScan('anthropic', true);
  const { begin, thought, text } = events;
  const told = [
    begin,
    thought('a'),
    thought('b'),
    text(''),
    text('c'),
    text('d'),
    events.arguments('{'),
    text('e'),
    { type: 'message_stop' },
  ];
  deepEqual(
    told.map((event) => scan.feed(sse(event))),
    [false, false, true, false, false, true, false, false, false],
  );
  const chat = new TokenScan('openai-chat', true);
  const deltas = [{ role: 'assistant', content: '' }, { reasoning: 'a' }, { content: 'b' }, { content: 'c' }];
  deepEqual(
    deltas.map((delta) => chat.feed(sse({ choices: [{ delta }] }))),
    [false, false, false, true],
  );
});

test('of an answer that is no stream no piece may wait', () => {
  const scan = new TokenScan('openai-chat', false);
  const answer = JSON.stringify({ choices: [{ message: { content: 'a long text' } }] });
  const pieces = [answer.slice(0, 40), answer.slice(40, 45), answer.slice(45)];
  deepEqual(
    pieces.map((piece) => scan.feed(Buffer.from(piece))),
    [false, false, false],
  );
});

interface Raw {
  gateway: TestGateway;
  /** Asks for a stream; `onData` as it comes. */
  ask(onData: (text: string) => void, signal?: AbortSignal): Promise<GatewayAnswer>;
  /** The model's end of each call, its head written. */
  models: Socket[];
}

/** A model that writes what the test tells it, chunk by chunk (RFC 9112, section 7.1). `opening`: goes with its head. */
async function rawModel(t: TestContext, opening = ''): Promise<Raw> {
  const models: Socket[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (data) => {
      // The body of a call may come by itself, and a kept connection has several calls.
      if (!data.toString('latin1').startsWith('POST ')) return;
      socket.write(
        `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n${opening}`,
      );
      models.push(socket);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const gateway = await startGateway({
    env: { ANTHROPIC_API_KEY: operatorKey, ANTHROPIC_BASE_URL: url },
    model: 'anthropic/m',
  });
  t.after(async () => {
    await gateway.close();
    for (const socket of new Set(models)) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  const ask: Raw['ask'] = (onData, signal) =>
    gateway.send('/llm/anthropic/v1/messages', {
      body: { model: 'm', stream: true },
      onData: (chunk) => onData(chunk.toString()),
      ...(signal ? { signal } : {}),
    });
  return { gateway, ask, models };
}

const chunk = (text: string | Buffer): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const textChunk = (text: string): string => chunk(sse(events.text(text)));
const lastChunk = '0\r\n\r\n';

test('the pieces of one moment leave as one, the first text before them, and every byte in its order is counted', async (t) => {
  const { gateway, ask, models } = await rawModel(t);
  const seen: string[] = [];
  const answer = ask((text) => void seen.push(text));
  const model = await until('the model is asked', () => models[0]);
  model.write(textChunk('first'));
  await until('the first text is there while the model is silent', () => seen.length === 1);
  const words = Array.from({ length: 50 }, (_, index) => `w${index} `);
  model.write(words.map(textChunk).join(''));
  const usage = sse({ type: 'message_delta', usage: { output_tokens: 51 } });
  model.write(chunk(usage) + lastChunk);
  const { text, isComplete } = await inTime('the answer ends', answer);
  ok(isComplete);
  const sent = [...['first', ...words].map((word) => sse(events.text(word))), usage];
  equal(text, sent.join(''));
  // Each piece of the model's was one of the gateway's before.
  ok(seen.length <= 10, `${seen.length} pieces`);
  const output = gateway.usages[0]?.entries.find(({ meter }) => meter === 'model.output_tokens');
  equal(output?.quantity, 51);
});

test('the head of an answer is written by itself only when nothing has come with it', async (t) => {
  const late = await rawModel(t);
  const first = late.ask(() => {});
  const model = await until('the model is asked', () => late.models[0]);
  await until('its head is passed on', () => late.gateway.headsAlone() === 1);
  model.write(textChunk('first') + lastChunk);
  ok((await inTime('the answer ends', first)).isComplete);
  for (const end of ['', lastChunk]) {
    const { gateway, ask, models } = await rawModel(t, textChunk('first') + end);
    const answer = ask(() => {});
    const there = await until('the model is asked', () => models[0]);
    if (end === '') there.write(lastChunk);
    const { text, isComplete } = await inTime('the answer ends', answer);
    ok(isComplete);
    equal(text, sse(events.text('first')).toString());
    equal(gateway.headsAlone(), 0);
  }
});

test('a stream that is cut passes on what waited, and does not look like one that ended', async (t) => {
  const { ask, models } = await rawModel(t);
  const seen: string[] = [];
  const answer = ask((text) => void seen.push(text));
  const model = await until('the model is asked', () => models[0]);
  model.write(textChunk('first'));
  await until('the first text is there', () => seen.length === 1);
  model.end(textChunk('second'));
  const { text, isComplete } = await inTime('the answer breaks off', answer);
  ok(!isComplete);
  ok(text.includes('second'));
});

test('the end of a stream waits for nothing', async (t) => {
  const { ask, models } = await rawModel(t);
  // Had it waited, each of them would have taken longer; the machine may be slow in some.
  let shortestMs = Infinity;
  for (let call = 0; call < 100 && shortestMs > joinMs / 2; call += 1) {
    let firstMs = 0;
    const answer = ask(() => {
      if (firstMs > 0) return;
      firstMs = performance.now();
      models[call]?.write(textChunk('again') + textChunk('last') + lastChunk);
    });
    const model = await until('the model is asked', () => models[call]);
    model.write(textChunk('first'));
    await inTime('the answer ends', answer);
    shortestMs = Math.min(shortestMs, performance.now() - firstMs);
  }
  ok(shortestMs < joinMs / 2, `${shortestMs} ms`);
});

test('a client that leaves while pieces wait ends the call at the model, and nothing is written to it any more', async (t) => {
  const { gateway, ask, models } = await rawModel(t);
  const leave = new AbortController();
  const answered = ask((text) => {
    if (!text.includes('first')) return;
    models[0]?.write(textChunk('second'));
    leave.abort();
  }, leave.signal).catch(() => null);
  const model = await until('the model is asked', () => models[0]);
  const closed = new Promise((resolve) => model.once('close', resolve));
  model.write(textChunk('first'));
  await inTime('the call at the model has ended', closed);
  await inTime('the client has left', answered);
  await until('its usage is told', () => gateway.usages.length === 1);
  equal(gateway.logged(), '');
});

test('a reader that does not read stops the model’s stream, and gets all of it when it reads again', async (t) => {
  const { gateway, models } = await rawModel(t);
  const asked = request({
    socketPath: gateway.socketPath,
    path: '/llm/anthropic/v1/messages',
    method: 'POST',
    headers: { authorization: `Bearer ${sandboxToken}`, 'content-type': 'application/json' },
    agent: false,
  });
  const answered = new Promise<IncomingMessage>((resolve) => asked.once('response', resolve));
  asked.end(JSON.stringify({ model: 'm', stream: true }));
  const model = await until('the model is asked', () => models[0]);
  const response = await inTime('it is answered', answered);
  const piece = textChunk('x'.repeat(1000));
  let pieces = 0;
  // Socket buffers on the way take some megabytes, and then nobody takes more.
  while (model.writableLength < 1024 * 1024 && pieces < 100_000) {
    for (let n = 0; n < 100; n += 1) model.write(piece);
    pieces += 100;
    await turn();
  }
  ok(pieces < 100_000, 'the model could write for ever');
  model.write(lastChunk);
  let bytes = 0;
  for await (const data of response) bytes += (data as Buffer).length;
  ok(response.complete);
  equal(bytes, pieces * sse(events.text('x'.repeat(1000))).length);
});
