import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { test } from 'node:test';
import { Flight } from '../../src/domain/flight.ts';
import { limits as bodyLimits } from '../../src/domain/limits.ts';
import { maxBodyBytes } from '../../src/gateway/read-body.ts';
import { operatorKey, startGateway } from '../support/gateway.ts';
import type { GatewayAnswer, TestGateway, TestGatewayOptions } from '../support/gateway.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import type { ScriptedReply } from '../support/scripted-model.ts';
import { servicePort } from '../support/service-port.ts';
import { inTime } from '../support/until.ts';

const path = '/llm/anthropic/v1/messages';
const body = { model: 'm', stream: true };

async function sendTo(
  reply: ScriptedReply,
  options: Partial<TestGatewayOptions> = {},
): Promise<{ answer: GatewayAnswer; gateway: TestGateway; calls: number }> {
  const provider = await startScriptedModel(() => reply);
  const gateway = await startGateway({
    env: { ANTHROPIC_API_KEY: operatorKey, ANTHROPIC_BASE_URL: provider.url },
    model: 'anthropic/m',
    ...options,
  });
  const answer = await gateway.send(path, { body });
  await gateway.close();
  await provider.close();
  return { answer, gateway, calls: provider.requests.length };
}

function errorOf(answer: GatewayAnswer): { type: string; code: string; message: string } {
  const parsed = JSON.parse(answer.text);
  equal(parsed.type, 'error');
  return parsed.error;
}

test('429 and its retry-after pass unchanged, after one call and without usage', async () => {
  const { answer, gateway, calls } = await sendTo({
    error: { status: 429, message: 'slow down' },
    headers: { 'retry-after': '7' },
  });
  equal(answer.status, 429);
  equal(answer.headers['retry-after'], '7');
  equal(errorOf(answer).message, 'slow down');
  equal(calls, 1);
  equal(gateway.usages.length, 0);
  ok(gateway.reservations[0]?.released);
});

test('an error that quotes the key is not shown', async () => {
  const { answer, gateway } = await sendTo({ error: { status: 400, message: `bad key ${operatorKey}` } });
  equal(answer.status, 502);
  ok(!answer.text.includes(operatorKey));
  ok(!gateway.logged().includes(operatorKey));
});

test('a key that the provider refuses is named by its variable, and the provider’s text about it is not shown', async () => {
  const { answer } = await sendTo({ error: { status: 401, message: 'Incorrect key: oper...ests' } });
  equal(answer.status, 401);
  const error = errorOf(answer);
  ok(error.message.includes('ANTHROPIC_API_KEY'));
  ok(!answer.text.includes('oper...ests'));
});

test('the provider’s 402 is not taken for the agent’s budget', async () => {
  const { answer } = await sendTo({ error: { status: 402, message: 'account has no credit' } });
  equal(answer.status, 403);
  equal(errorOf(answer).message, 'account has no credit');
});

test('a redirect is not followed', async () => {
  const { answer, calls } = await sendTo({
    error: { status: 307, message: '' },
    headers: { location: 'http://169.254.169.254/' },
  });
  equal(answer.status, 502);
  equal(answer.headers.location, undefined);
  equal(calls, 1);
});

test('a refused budget is 402 in the wire’s shape and makes no call', async () => {
  const { answer, calls, gateway } = await sendTo(
    { text: ['x'] },
    { reserve: async () => ({ ok: false, message: 'The budget of this agent is used up.' }) },
  );
  equal(answer.status, 402);
  equal(errorOf(answer).code, 'budget_exceeded');
  equal(errorOf(answer).message, 'The budget of this agent is used up.');
  equal(calls, 0);
  equal(gateway.usages.length, 0);
});

test('a budget that cannot be asked is 500 without a reason from inside', async () => {
  const { answer, calls } = await sendTo(
    { text: ['x'] },
    { reserve: () => Promise.reject(new Error('connection to 10.0.0.5 lost')) },
  );
  equal(answer.status, 500);
  ok(!answer.text.includes('10.0.0.5'));
  equal(calls, 0);
});

async function listenRaw(
  onSocket: (socket: Socket) => void,
): Promise<{ url: string; close: () => Promise<void> }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    onSocket(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function sendToUrl(url: string, options: Partial<TestGatewayOptions> = {}) {
  const gateway = await startGateway({
    env: { ANTHROPIC_API_KEY: operatorKey, ANTHROPIC_BASE_URL: url },
    model: 'anthropic/m',
    ...options,
  });
  const answer = await gateway.send(path, { body });
  await gateway.close();
  return { answer, gateway };
}

test('an unreachable provider is 502 without its address', async () => {
  const { answer, gateway } = await sendToUrl(`http://127.0.0.1:${await servicePort()}`);
  equal(answer.status, 502);
  ok(!answer.text.includes('127.0.0.1'));
  equal(errorOf(answer).type, 'api_error');
  ok(gateway.reservations[0]?.released);
});

test('a provider that closes without an answer, or answers no HTTP, is 502', async () => {
  for (const onSocket of [
    (socket: Socket) => void socket.once('data', () => socket.destroy()),
    (socket: Socket) => void socket.once('data', () => socket.end('SSH-2.0-x\r\n')),
  ]) {
    const server = await listenRaw(onSocket);
    const { answer } = await sendToUrl(server.url);
    await server.close();
    equal(answer.status, 502);
  }
});

test('a provider that takes no connection in time is 502, told apart from one that does not answer', async () => {
  const timeouts = { connectMs: 0, firstByteMs: 60_000, idleMs: 60_000 };
  // The handshake of TLS never ends.
  const mute = await listenRaw(() => {});
  const { answer } = await sendToUrl(mute.url.replace('http:', 'https:'), { gateway: { timeouts } });
  await mute.close();
  equal(answer.status, 502);
  match(answer.text, /cannot be reached \(no connection in time\)/);
});

test('a provider that does not begin to answer is 504, one that stops in the middle ends the stream', async () => {
  // In each half one limit is short: on a slow machine another short one could come before it.
  const limits = { connectMs: 60_000, firstByteMs: 60_000, idleMs: 60_000 };
  const silent = await listenRaw(() => {});
  const first = await sendToUrl(silent.url, { gateway: { timeouts: { ...limits, firstByteMs: 60 } } });
  await silent.close();
  equal(first.answer.status, 504);

  const stuck = await listenRaw((socket) => {
    socket.once('data', () =>
      socket.write(
        'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n4\r\n: x\n\r\n',
      ),
    );
  });
  const second = await sendToUrl(stuck.url, { gateway: { timeouts: { ...limits, idleMs: 60 } } });
  await stuck.close();
  equal(second.answer.status, 200);
  equal(second.answer.isComplete, false);
});

test('a sandbox that holds too many large bodies at once gets 429', async () => {
  const refused = Promise.withResolvers<void>();
  // None has ended before one was refused.
  const provider = await startScriptedModel(async () => {
    await refused.promise;
    return { text: ['x'] };
  });
  const gateway = await startGateway({
    env: { ANTHROPIC_API_KEY: operatorKey, ANTHROPIC_BASE_URL: provider.url },
    model: 'anthropic/m',
    gateway: {
      bodies: new Flight({ smallBytes: 1_000, ofPart: 100_000, ofOrg: 1_000_000, ofAll: 1_000_000 }),
    },
  });
  const large = Buffer.concat([Buffer.from('{"model":"m"}'), Buffer.alloc(45_000, ' ')]);
  const sent = [1, 2, 3].map(() => gateway.send(path, { body: large }));
  await inTime('one is refused', Promise.race(sent)).finally(() => refused.resolve());
  const answers = await Promise.all(sent);
  const after = await gateway.send(path, { body });
  await gateway.close();
  await provider.close();
  equal(answers.filter(({ status }) => status === 200).length, 2);
  equal(answers.filter(({ status }) => status === 429).length, 1);
  equal(after.status, 200);
});

test('sandboxes of one organisation together hold so much, small requests go on, and another organisation has its own', async () => {
  const bodies = new Flight({ smallBytes: 1_000, ofPart: 60_000, ofOrg: 100_000, ofAll: 1_000_000 });
  const provider = await startScriptedModel(() => ({ text: ['x'] }));
  const gateway = await startGateway({
    env: { ANTHROPIC_API_KEY: operatorKey, ANTHROPIC_BASE_URL: provider.url },
    model: 'anthropic/m',
    gateway: { bodies },
  });
  const large = Buffer.concat([Buffer.from('{"model":"m"}'), Buffer.alloc(45_000, ' ')]);
  for (const partId of ['one', 'two', 'three']) bodies.open('a neighbour', { partId }).add(30_000);
  equal((await gateway.send(path, { body: large })).status, 200);
  const others = ['one', 'two'].map((partId) => {
    const held = bodies.open(gateway.caller.orgId, { partId });
    held.add(30_000);
    return held;
  });
  const refused = await gateway.send(path, { body: large });
  const small = await gateway.send(path, { body });
  others[0]!.drop();
  const after = await gateway.send(path, { body: large });
  await gateway.close();
  await provider.close();
  deepEqual([refused.status, small.status, after.status], [429, 200, 200]);
  match(refused.text, /Too many large model requests at once/);
});

test('an organisation holds as much as two sandboxes, and a sandbox two of the largest requests', () => {
  const { ofPart, ofOrg, ofAll } = bodyLimits.modelBodies;
  deepEqual([ofPart, ofOrg, ofAll], [2 * maxBodyBytes, 4 * maxBodyBytes, 16 * maxBodyBytes]);
});
