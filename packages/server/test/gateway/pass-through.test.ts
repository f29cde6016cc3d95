import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { operatorKey, sandboxToken, startGateway } from '../support/gateway.ts';
import type { TestGatewayOptions } from '../support/gateway.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import type { ScriptedModel, ScriptedReply } from '../support/scripted-model.ts';
import { inTime } from '../support/until.ts';

const reply: ScriptedReply = {
  text: ['Grüße', ' aus', ' 東京', ' "usage":{"input_tokens":1}'],
  toolCalls: [{ name: 'bash', input: { command: 'ls "a b"' } }],
  usage: { input: 12, cachedInput: 4, output: 7 },
};

function environment(model: ScriptedModel): Record<string, string> {
  return {
    ANTHROPIC_API_KEY: operatorKey,
    ANTHROPIC_BASE_URL: model.url,
    OPENAI_API_KEY: operatorKey,
    OPENAI_BASE_URL: model.openaiUrl,
    GEMINI_API_KEY: operatorKey,
    GEMINI_BASE_URL: model.url,
  };
}

const wires = [
  {
    model: 'anthropic/m',
    path: '/llm/anthropic/v1/messages',
    upstream: '/v1/messages',
    keyHeader: 'x-api-key',
  },
  {
    model: 'anthropic/m',
    path: '/llm/anthropic/v1/chat/completions',
    upstream: '/v1/chat/completions',
    keyHeader: 'authorization',
  },
  {
    model: 'openai/m',
    path: '/llm/openai/v1/chat/completions',
    upstream: '/v1/chat/completions',
    keyHeader: 'authorization',
  },
  {
    model: 'openai/m',
    path: '/llm/openai/v1/responses',
    upstream: '/v1/responses',
    keyHeader: 'authorization',
  },
  {
    model: 'gemini/m',
    path: '/llm/gemini/v1beta/models/m:streamGenerateContent?alt=sse',
    upstream: '/v1beta/models/m:streamGenerateContent?alt=sse',
    keyHeader: 'x-goog-api-key',
  },
  {
    model: 'gemini/m',
    path: '/llm/gemini/v1beta/openai/chat/completions',
    upstream: '/v1beta/openai/chat/completions',
    keyHeader: 'authorization',
  },
  {
    model: 'openai/m',
    path: '/llm/v1/chat/completions',
    upstream: '/v1/chat/completions',
    keyHeader: 'authorization',
  },
];

for (const { model, path, upstream, keyHeader } of wires) {
  for (const stream of [true, false]) {
    test(`${path} (stream: ${stream}) passes every byte on and swaps the token for the key`, async () => {
      const provider = await startScriptedModel(() => reply);
      const gateway = await startGateway({ env: environment(provider), model });
      const answer = await gateway.send(path, { body: { model: 'm', stream, messages: [] } });
      const [request] = provider.requests;
      await gateway.close();
      await provider.close();

      equal(answer.status, 200);
      ok(request);
      equal(request.path, upstream);
      ok(answer.body.equals(request.sent()));
      const sentKey = request.headers[keyHeader];
      equal(sentKey, keyHeader === 'authorization' ? `Bearer ${operatorKey}` : operatorKey);
      ok(!request.rawHeaders.join('\n').includes(sandboxToken));
      const downstream = JSON.stringify(answer.headers) + answer.text;
      ok(!downstream.includes(operatorKey));
      equal(gateway.usages.length, 1);
      ok(!gateway.logged().includes(operatorKey));
    });
  }
}

async function sendOnce(
  options: Partial<TestGatewayOptions> & { model: string },
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
  script: ScriptedReply = { text: ['ok'] },
) {
  const provider = await startScriptedModel(() => script);
  const gateway = await startGateway({ env: environment(provider), ...options });
  const answer = await gateway.send(path, { body, headers });
  await gateway.close();
  await provider.close();
  return {
    answer,
    request: provider.requests[0],
    usages: gateway.usages,
    reservations: gateway.reservations,
  };
}

test('a body without anything to change arrives byte for byte', async () => {
  const body =
    '{ "model" : "m",\n "messages":[{"role":"user","content":"\\u00e9 \\ud83d\\ude00"}], "future_field": 1.50 }';
  const { request } = await sendOnce({ model: 'anthropic/m' }, '/llm/anthropic/v1/messages', body);
  equal(request?.bodyBytes.toString(), body);
});

test('a side call to another model is rewritten to the agent’s model and no other byte changes', async () => {
  const body = '{"a":1, "model" : "tiny-title-model" ,"messages":[]}';
  const { request, usages } = await sendOnce({ model: 'anthropic/m' }, '/llm/anthropic/v1/messages', body);
  equal(request?.bodyBytes.toString(), '{"a":1, "model" : "m" ,"messages":[]}');
  equal(usages[0]?.model, 'anthropic/m');
});

test('a missing model becomes the agent’s, also in an empty object', async () => {
  const empty = await sendOnce({ model: 'anthropic/m' }, '/llm/anthropic/v1/messages', ' { } ');
  equal(empty.request?.bodyBytes.toString(), ' {"model":"m" } ');
  const some = await sendOnce({ model: 'anthropic/m' }, '/llm/anthropic/v1/messages', '{"x":[]}');
  equal(some.request?.bodyBytes.toString(), '{"model":"m","x":[]}');
});

test('the model may be written with its provider, and may hold slashes', async () => {
  const { request } = await sendOnce(
    { model: 'openai/vendor/m', secretKeys: { OPENAI_API_KEY: 'own' } },
    '/llm/openai/v1/chat/completions',
    { model: 'openai/vendor/other' },
  );
  equal(request?.body.model, 'vendor/other');
});

test('a side call of Gemini, which names the model in its path, is rewritten there', async () => {
  const { request } = await sendOnce(
    { model: 'gemini/big' },
    '/llm/gemini/v1beta/models/lite:generateContent',
    {},
  );
  equal(request?.path, '/v1beta/models/big:generateContent');
});

test('a model name cannot leave its place in a Gemini path', async () => {
  const { request } = await sendOnce(
    { model: 'gemini/../../v1/files?x#' },
    '/llm/gemini/v1beta/models/m:generateContent',
    {},
  );
  equal(request?.path, '/v1beta/models/..%2F..%2Fv1%2Ffiles%3Fx%23:generateContent');
});

test('a streamed chat completion is made to report its usage', async () => {
  const path = '/llm/openai/v1/chat/completions';
  const absent = await sendOnce({ model: 'openai/m' }, path, '{"model":"m","stream":true}');
  equal(
    absent.request?.bodyBytes.toString(),
    '{"stream_options":{"include_usage":true},"model":"m","stream":true}',
  );
  const other = await sendOnce(
    { model: 'openai/m' },
    path,
    '{"stream":true,"stream_options":{"x":1},"model":"m"}',
  );
  equal(
    other.request?.bodyBytes.toString(),
    '{"stream":true,"stream_options":{"x":1,"include_usage":true},"model":"m"}',
  );
  const asked = '{"stream":true,"model":"m","stream_options":{"include_usage":true}}';
  equal((await sendOnce({ model: 'openai/m' }, path, asked)).request?.bodyBytes.toString(), asked);
  const whole = '{"model":"m","stream":false}';
  equal((await sendOnce({ model: 'openai/m' }, path, whole)).request?.bodyBytes.toString(), whole);
});

test('the vendors’ switches pass, credentials and everything about the connection do not', async () => {
  const { request } = await sendOnce(
    { model: 'anthropic/m' },
    '/llm/anthropic/v1/messages?beta=true',
    { model: 'm' },
    {
      'anthropic-version': '2023-06-01',
      'anthropic-beta': 'a-1,b-2',
      'x-stainless-lang': 'js',
      'x-berth-session': 'session-1',
      'x-goog-api-key': sandboxToken,
      'openai-organization': 'org-other',
      'x-forwarded-for': '10.0.0.1',
      'proxy-authorization': 'Basic eA==',
      cookie: 'a=b',
    },
  );
  const headers = request?.headers ?? {};
  equal(request?.path, '/v1/messages?beta=true');
  equal(headers['anthropic-version'], '2023-06-01');
  equal(headers['anthropic-beta'], 'a-1,b-2');
  equal(headers['x-stainless-lang'], 'js');
  equal(headers['accept-encoding'], 'identity');
  for (const name of [
    'x-berth-session',
    'x-goog-api-key',
    'openai-organization',
    'x-forwarded-for',
    'proxy-authorization',
    'cookie',
    'authorization',
  ]) {
    equal(headers[name], undefined, name);
  }
});

test('of the answer’s headers only those pass that clients need', async () => {
  const { answer } = await sendOnce(
    { model: 'anthropic/m' },
    '/llm/anthropic/v1/messages',
    { model: 'm' },
    {},
    {
      text: ['ok'],
      headers: {
        'request-id': 'req_1',
        'anthropic-ratelimit-tokens-remaining': '5',
        'anthropic-organization-id': 'org-secret',
        'set-cookie': 'a=b',
        server: 'x',
      },
    },
  );
  equal(answer.headers['request-id'], 'req_1');
  equal(answer.headers['anthropic-ratelimit-tokens-remaining'], '5');
  for (const name of ['anthropic-organization-id', 'set-cookie', 'server'])
    equal(answer.headers[name], undefined, name);
});

test('the session of the harness reaches the usage', async () => {
  const { usages } = await sendOnce(
    { model: 'anthropic/m' },
    '/llm/anthropic/v1/messages',
    { model: 'm' },
    { 'x-berth-session': 'session-1' },
  );
  equal(usages[0]?.sessionId, 'session-1');
});

test('the token is accepted in each of the three headers, and a wrong one in none', async () => {
  const provider = await startScriptedModel(() => ({ text: ['ok'] }));
  const gateway = await startGateway({ env: environment(provider), model: 'anthropic/m' });
  const statuses: number[] = [];
  for (const token of [sandboxToken, 'wrong', '']) {
    for (const headers of [
      { 'x-api-key': token, authorization: 'Bearer x' },
      { 'x-goog-api-key': token, authorization: '' },
      { authorization: `Bearer ${token}` },
    ]) {
      const { status } = await gateway.send('/llm/anthropic/v1/messages', { body: { model: 'm' }, headers });
      statuses.push(status);
    }
  }
  await gateway.close();
  await provider.close();
  deepEqual(statuses, [200, 200, 200, 401, 401, 401, 401, 401, 401]);
  equal(provider.requests.length, 3);
});

test('the agent’s own key is used before the operator’s, for models of its choice, and the usage says so', async () => {
  const { request, usages } = await sendOnce(
    { model: 'anthropic/m', secretKeys: { ANTHROPIC_API_KEY: 'own-key' } },
    '/llm/anthropic/v1/messages',
    { model: 'another' },
  );
  equal(request?.headers['x-api-key'], 'own-key');
  equal(request?.body.model, 'another');
  equal(usages[0]?.model, 'anthropic/another');
  ok(usages[0]?.priceVersion.endsWith('+own-key'));
});

test('another provider is open on the agent’s own key only', async () => {
  const path = '/llm/openai/v1/chat/completions';
  const refused = await sendOnce({ model: 'anthropic/m' }, path, { model: 'gpt' });
  equal(refused.answer.status, 403);
  ok(refused.answer.text.includes('OPENAI_API_KEY'));
  equal(refused.request, undefined);
  const open = await sendOnce({ model: 'anthropic/m', secretKeys: { OPENAI_API_KEY: 'own' } }, path, {
    model: 'gpt',
  });
  equal(open.request?.headers['authorization'], 'Bearer own');
});

test('without a key the answer names the variable, in the shape of the wire', async () => {
  const gateway = await startGateway({ env: {}, model: 'anthropic/m' });
  const anthropic = await gateway.send('/llm/anthropic/v1/messages', { body: { model: 'm' } });
  await gateway.close();
  equal(anthropic.status, 401);
  const body = JSON.parse(anthropic.text);
  equal(body.type, 'error');
  equal(body.error.type, 'authentication_error');
  ok(body.error.message.includes('ANTHROPIC_API_KEY'));
  equal(gateway.reservations.length, 0);
});

test('token counting passes and is neither reserved nor billed', async () => {
  const { answer, usages, reservations } = await sendOnce(
    { model: 'anthropic/m' },
    '/llm/anthropic/v1/messages/count_tokens',
    { model: 'm' },
    {},
    { raw: { contentType: 'application/json', chunks: ['{"input_tokens":5}'] } },
  );
  equal(answer.text, '{"input_tokens":5}');
  equal(usages.length + reservations.length, 0);
});

test('a stream arrives piece by piece, not at its end', async () => {
  const arrived = Promise.withResolvers<void>();
  const provider = await startScriptedModel(() => ({
    text: ['one', 'two', 'three'],
    // The second is not sent before the first is there.
    hold: (event) => (event.includes('two') ? arrived.promise : undefined),
  }));
  const gateway = await startGateway({ env: environment(provider), model: 'openai/m' });
  let text = '';
  const answer = gateway.send('/llm/openai/v1/chat/completions', {
    body: { model: 'm', stream: true },
    onData: (chunk) => {
      text += chunk.toString();
      if (text.includes('one')) arrived.resolve();
    },
  });
  const { isComplete } = await inTime('all of it has arrived', answer);
  await gateway.close();
  await provider.close();
  ok(isComplete && text.includes('three'));
});

test('models are listed without asking the provider, in the shape of the wire', async () => {
  const provider = await startScriptedModel(() => ({}));
  const gateway = await startGateway({ env: environment(provider), model: 'anthropic/m' });
  const list = async (path: string) => JSON.parse((await gateway.send(path)).text);
  const anthropic = await list('/llm/anthropic/v1/models');
  const routed = await list('/llm/v1/models');
  const one = await list('/llm/anthropic/v1/models/m');
  const other = await gateway.send('/llm/openai/v1/models');
  const missing = await gateway.send('/llm/anthropic/v1/models/x');
  await gateway.close();
  await provider.close();
  deepEqual(
    anthropic.data.map((entry: { id: string }) => entry.id),
    ['m'],
  );
  equal(anthropic.has_more, false);
  deepEqual(
    routed.data.map((entry: { id: string }) => entry.id),
    ['anthropic/m'],
  );
  equal(one.id, 'm');
  deepEqual(JSON.parse(other.text).data, []);
  equal(missing.status, 404);
  equal(provider.requests.length, 0);
});
