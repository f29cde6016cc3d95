import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { createServer } from 'node:http';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { prepareCall } from '../../src/gateway/call.ts';
import { readProviders } from '../../src/gateway/providers.ts';
import { parseRoute } from '../../src/gateway/routes.ts';
import { sliceBytes } from '../../src/gateway/slices.ts';
import { urlSources } from '../../src/gateway/url-sources.ts';
import { everyWire, operatorKey, sandboxToken, startGateway } from '../support/gateway.ts';
import type { TestGateway } from '../support/gateway.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import { until } from '../support/until.ts';

const demoPath = '/llm/demo/v1/chat/completions';
const megabyte = 1024 * 1024;
/** Of an answer of the demonstration that nobody reads: one piece of 16 KiB, and the event that made it full. */
const maxHeldBytes = 20 * 1024;

const bodyWith = (unit: string, times: number): string =>
  `{"model":"m","messages":[${unit.repeat(times)}{"role":"user","content":"hi"}]}`;

async function startHouse(t: TestContext): Promise<{ gateway: TestGateway; calls: () => number }> {
  const provider = await startScriptedModel(() => ({ text: ['ok'] }));
  const gateway = await startGateway({
    env: everyWire(provider),
    model: 'openai/m',
    secretKeys: { ANTHROPIC_API_KEY: 'own', GEMINI_API_KEY: 'own' },
  });
  t.after(async () => {
    await gateway.close();
    await provider.close();
  });
  return { gateway, calls: () => provider.requests.length };
}

const list = (length: number, entry: string): string => `[${Array(length).fill(entry).join(',')}]`;
const fieldsOf = (count: number): string =>
  Array.from({ length: count }, (_, index) => `"f${index}":1`).join(',');

const refusedShapes: [string, string, RegExp][] = [
  ['more than 256 fields', `{"model":"m",${fieldsOf(256)}}`, /at most 256 fields/],
  ['a field name of more than 256 bytes', `{"model":"m","${'n'.repeat(257)}":1}`, /at most 256 bytes/],
  ['more than 10000 tools', `{"model":"m","tools":${list(10_001, '{}')}}`, /at most 10000 entries/],
  ['a tool with more than 256 fields', `{"model":"m","tools":[{${fieldsOf(257)}}]}`, /at most 256 fields/],
  ['a model that is a large list', `{"model":${list(1000, '{}')}}`, /"model" may have at most 1024 bytes/],
  [
    'a large list as max_tokens',
    `{"model":"m","max_tokens":${list(1000, '{}')}}`,
    /"max_tokens" may have at most 1024/,
  ],
  [
    'more than 1 MiB of white space',
    `{"model":"m",${' '.repeat(megabyte + 1)}"x":1}`,
    /too much white space/,
  ],
];

test('a shape that would take long to look at is refused on every wire, with the reason, and reaches no provider', async (t) => {
  const { gateway, calls } = await startHouse(t);
  const paths: [string, (body: { error: Record<string, unknown> }) => void][] = [
    ['/llm/openai/v1/chat/completions', ({ error }) => equal(error['type'], 'invalid_request_error')],
    ['/llm/openai/v1/responses', ({ error }) => equal(error['type'], 'invalid_request_error')],
    ['/llm/anthropic/v1/messages', ({ error }) => equal(error['type'], 'invalid_request_error')],
  ];
  for (const [path, check] of paths) {
    for (const [what, body, reason] of refusedShapes) {
      const answer = await gateway.send(path, { body });
      equal(answer.status, 400, `${path}: ${what}: ${answer.text.slice(0, 200)}`);
      const told = JSON.parse(answer.text);
      check(told);
      match(told.error.message, reason, what);
    }
  }
  const gemini = '/llm/gemini/v1beta/models/m:generateContent';
  const config = `{"generationConfig":{"x":${list(100_000, '{}')}}}`;
  for (const body of [`{${fieldsOf(257)}}`, config]) {
    const answer = await gateway.send(gemini, { body });
    equal(answer.status, 400);
    equal(JSON.parse(answer.text).error.status, 'INVALID_ARGUMENT');
  }
  equal(calls(), 0);
  const most = `{"model":"m","tools":${list(10_000, '{"type":"function"}')},${fieldsOf(254)}}`;
  equal((await gateway.send('/llm/openai/v1/chat/completions', { body: most })).status, 200);
});

function pausesOf(work: Generator<void, unknown>): number {
  for (let pauses = 0; ; pauses += 1) if (work.next().done) return pauses;
}

test('the look at a large body pauses after each slice of it, and a small one is looked at in one go', () => {
  const route = parseRoute('POST', '/llm/openai/v1/chat/completions')!;
  const providers = readProviders({ OPENAI_API_KEY: operatorKey }, null);
  const caller = {
    orgId: 'o',
    agentId: 'a',
    sandboxId: 's',
    model: 'openai/m',
    tokenHash: '',
    secretKeys: {},
  };
  const work = (body: string) => prepareCall(caller, route, providers, Buffer.from(body));
  for (const unit of [
    '{},',
    '1,',
    '"",',
    `${'['.repeat(400)}${']'.repeat(400)},`,
    `"\\n",${' '.repeat(1000)}`,
  ]) {
    const body = bodyWith(unit, Math.ceil((3 * megabyte) / unit.length));
    const least = Math.floor(body.length / (sliceBytes + 1024)) - 1;
    const pauses = pausesOf(work(body));
    ok(pauses >= least, `${unit.slice(0, 10)}: ${pauses} pauses, at least ${least} are due`);
  }
  const tools = `{"model":"m","tools":${list(2000, `{"type":"function","x":${list(300, '{}')}}`)}}`;
  let pauses = pausesOf(work(tools));
  ok(pauses >= 2 * Math.floor(tools.length / (2 * sliceBytes)), `${pauses} pauses`);
  const fields = `{"model":"m",${Array.from({ length: 200 }, (_, index) => `"f${index}":${list(1000, '{}')}`).join(',')}}`;
  pauses = pausesOf(work(fields));
  ok(pauses >= Math.floor(fields.length / sliceBytes) - 1, `${pauses} pauses between small fields`);
  ok(work(bodyWith('{"role":"user","content":"hello"},', 100)).next().done);
});

test('sources that are named by URL are looked for in slices as well, and one across the end of a slice is found', async () => {
  const pausesOf = (body: string): { pauses: number; urls: string[] } => {
    const running = urlSources('openai-chat', Buffer.from(body));
    for (let pauses = 0; ; pauses += 1) {
      const step = running.next();
      if (step.done) return { pauses, urls: step.value };
    }
  };
  const source = '{"image_url":{"url":"https://a.example/x"}}';
  for (let shift = 0; shift < 40; shift += 1) {
    const { urls } = pausesOf(
      `["${'a'.repeat(sliceBytes - 40 + shift)}",{"image_url":"https://a.example/x"}]`,
    );
    deepEqual(urls, ['https://a.example/x'], `${shift}`);
  }
  const many = pausesOf(list(50_000, source));
  equal(many.urls.length, 50_000);
  ok(many.pauses >= Math.floor((50_000 * source.length) / (sliceBytes + 100)) - 1, `${many.pauses} pauses`);
  const none = pausesOf(list(500_000, '{}'));
  ok(none.pauses >= Math.floor(1_500_000 / sliceBytes), `${none.pauses} pauses`);
});

test('a body in pieces of one byte arrives whole', async (t) => {
  const { gateway } = await startHouse(t);
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'ü'.repeat(3000) }] });
  const pieces = [...Buffer.from(body)].map((byte) => Buffer.from([0x31, 0x0d, 0x0a, byte, 0x0d, 0x0a]));
  const { socket, text } = dial(gateway.socketPath);
  socket.write(
    `POST /llm/openai/v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer ${sandboxToken}\r\ntransfer-encoding: chunked\r\n\r\n`,
  );
  socket.write(Buffer.concat([...pieces, Buffer.from('0\r\n\r\n')]));
  await until('it is answered', () => socket.destroyed);
  match(text(), /^HTTP\/1\.1 200 /);
});

test('the demonstration takes 8 MiB of text and no more, and 50000 names and values', async (t) => {
  const { gateway } = await startHouse(t);
  const say = (length: number): object => ({
    model: 'demo/guide',
    messages: [
      { role: 'user', content: [{ type: 'image_url', image_url: { url: 'x'.repeat(length) } }] },
      { role: 'user', content: 'say: yes' },
    ],
  });
  const demo = await startGateway({ env: {}, model: 'demo/guide' });
  t.after(() => demo.close());
  equal((await demo.send(demoPath, { body: say(8 * megabyte - 1000) })).status, 200);
  equal((await demo.send(demoPath, { body: bodyWith('{},', 45_000) })).status, 200);
  const tooLarge: [unknown, RegExp][] = [
    [say(8 * megabyte), /at most 8388608 bytes: begin a new conversation/],
    [bodyWith('{},', 50_000), /at most 50000 names and values/],
  ];
  for (const [body, reason] of tooLarge) {
    const answer = await demo.send(demoPath, { body });
    equal(answer.status, 413);
    const { error } = JSON.parse(answer.text);
    equal(error.code, 'too_large');
    equal(error.type, 'invalid_request_error');
    match(error.message, reason);
  }
  ok(demo.reservations.every(({ released }) => released));
  equal(
    (await gateway.send('/llm/openai/v1/chat/completions', { body: bodyWith('{},', 100_000) })).status,
    200,
  );
});

interface Dialled {
  socket: Socket;
  text: () => string;
}

function dial(path: string): Dialled {
  const chunks: Buffer[] = [];
  const socket = connect(path);
  socket.on('data', (chunk) => chunks.push(chunk));
  socket.on('error', () => {
    // The other end may close while something is written.
  });
  return { socket, text: () => Buffer.concat(chunks).toString() };
}

function demoRequest(content: string): string {
  const body = JSON.stringify({ model: 'guide', stream: true, messages: [{ role: 'user', content }] });
  return `POST ${demoPath} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${sandboxToken}\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

/** The gateway on a socket of its own whose answers are seen from the service's side, and the most that each held. */
async function watched(t: TestContext) {
  const demo = await startGateway({ env: {}, model: 'demo/guide' });
  const answers: ServerResponse[] = [];
  let mostHeld = 0;
  const server = createServer((request, response) => {
    answers.push(response);
    for (const name of ['write', 'end'] as const) {
      const send = response[name].bind(response) as (...args: unknown[]) => unknown;
      Object.assign(response, {
        [name]: (...args: unknown[]) => {
          const result = send(...args);
          mostHeld = Math.max(mostHeld, response.writableLength);
          return result;
        },
      });
    }
    demo.gateway.handle(demo.caller, request, response);
  });
  const path = join(demo.socketPath, '..', 'watched.sock');
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.after(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await demo.close();
  });
  return { demo, answers, path, mostHeld: () => mostHeld };
}

test('large bodies that are complete at the same moment are not all answered in one turn of the event loop', async (t) => {
  const { answers, path, demo } = await watched(t);
  const body = bodyWith('{},', 45_000);
  const head = `POST ${demoPath} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${sandboxToken}\r\ncontent-length: ${body.length}\r\n\r\n`;
  const clients = Array.from({ length: 40 }, () => dial(path));
  for (const { socket } of clients) socket.write(head + body.slice(0, -1));
  await until(
    'all but the last byte is there',
    () =>
      answers.length === 40 &&
      answers.every(({ req }) => req.socket.bytesRead === head.length + body.length - 1),
  );
  let most = 0;
  let before = 0;
  const turn = (): void => {
    const ended = answers.filter(({ writableEnded }) => writableEnded).length;
    most = Math.max(most, ended - before);
    before = ended;
    if (ended < 40) setImmediate(turn);
  };
  setImmediate(turn);
  for (const { socket } of clients) socket.write('}');
  await until('all are answered', () =>
    clients.every(({ text }) => text().includes('[DONE]') || text().includes('"choices"')),
  );
  ok(clients.every(({ text }) => text().startsWith('HTTP/1.1 200 ')));
  equal(demo.usages.length, 40);
  // As many as a slice has time for, with the one that ends it.
  ok(most <= 10, `${most} were answered in one turn`);
});

const longText = `say: ${'word '.repeat(4000)}`;

test('a client that does not read makes the service hold one piece of the demonstration’s answer, and gets all of it when it reads', async (t) => {
  const { answers, path, mostHeld, demo } = await watched(t);
  const client = dial(path);
  client.socket.pause();
  client.socket.write(demoRequest(longText));
  await until('the system takes no more', () => (answers[0]?.socket?.writableLength ?? 0) > 0);
  equal(answers[0]?.writableEnded, false);
  client.socket.resume();
  await until('the whole answer is there', () => client.text().includes('data: [DONE]'));
  equal(client.text().match(/"content":"\s*word"/g)?.length, 4000);
  ok(mostHeld() <= maxHeldBytes, `${mostHeld()} bytes were held`);
  client.socket.destroy();
  equal(demo.usages.length, 1);
});

test('answers that wait behind another on their connection hold one piece each, and end with the client', async (t) => {
  const { answers, path, mostHeld, demo } = await watched(t);
  const client = dial(path);
  client.socket.write(demoRequest('slow: 1000 5000') + demoRequest(longText) + demoRequest('slow: 1000 1'));
  await until(
    'all have begun',
    () =>
      answers.length === 3 && answers.every(({ writableLength }, index) => index === 0 || writableLength > 0),
  );
  await new Promise((resolve) => setImmediate(resolve));
  ok(answers.every(({ writableEnded }) => !writableEnded));
  ok(mostHeld() <= maxHeldBytes, `${mostHeld()} bytes were held`);
  client.socket.destroy();
  await until('all have ended', () => demo.usages.length === 3);
  const tokens = demo.usages.flatMap(({ entries }) =>
    entries.filter(({ meter }) => meter === 'model.output_tokens'),
  );
  ok(
    tokens.every(({ quantity }) => quantity < 1000),
    JSON.stringify(tokens.map(({ quantity }) => quantity)),
  );
});

test('the demonstration says at most 4096 words and 32768 characters, and says that it left something out', async (t) => {
  const demo = await startGateway({ env: {}, model: 'demo/guide' });
  t.after(() => demo.close());
  const answerTo = async (content: string) => {
    const tools = [{ type: 'function', function: { name: 'bash', parameters: {} } }];
    const answer = await demo.send(demoPath, {
      body: { model: 'guide', tools, messages: [{ role: 'user', content }] },
    });
    return JSON.parse(answer.text).choices[0];
  };
  const whole = `${'b '.repeat(4095)}b`;
  equal((await answerTo(`say: ${whole}`)).message.content, whole);
  const left = '\n\n(The rest is left out: the demonstration says at most 4096 words and 32768 characters.)';
  equal((await answerTo(`say: ${whole} b`)).message.content, whole + left);
  equal((await answerTo(`say: ${'x'.repeat(40_000)}`)).message.content, 'x'.repeat(32_768) + left);
  equal((await answerTo(`run: ${'x'.repeat(32_768)}`)).finish_reason, 'tool_calls');
  const long = await answerTo(`run: ${'x'.repeat(32_769)}`);
  equal(long.finish_reason, 'stop');
  match(long.message.content, /too long: the demonstration runs none of more than 32768 characters/);
});
