import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import type { ModelUsage } from '../../src/domain/ports/model-gateway.ts';
import { catalogPrices } from '../../src/gateway/prices.generated.ts';
import { parseDollars } from '../../src/domain/money.ts';
import { estimateMicros, tokensUsed, usageEntries } from '../../src/gateway/prices.ts';
import { TokenScan } from '../../src/gateway/token-scan.ts';
import type { TokenCounts } from '../../src/gateway/usage-paths.ts';
import type { Wire } from '../../src/gateway/wires.ts';
import { operatorKey, startGateway } from '../support/gateway.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import type { ScriptedReply } from '../support/scripted-model.ts';
import { until } from '../support/until.ts';

const prices = { input: '2', cachedInput: '0.5', output: '10' };
const paths: Record<Wire, string> = {
  anthropic: '/llm/a/v1/messages',
  'openai-chat': '/llm/o/v1/chat/completions',
  'openai-responses': '/llm/o/v1/responses',
  gemini: '/llm/g/v1beta/models/m:streamGenerateContent?alt=sse',
};
const models: Record<Wire, string> = {
  anthropic: 'a/m',
  'openai-chat': 'o/m',
  'openai-responses': 'o/m',
  gemini: 'g/m',
};
const wires = Object.keys(paths) as Wire[];

async function start(wire: Wire, script: () => ScriptedReply | Promise<ScriptedReply>) {
  const provider = await startScriptedModel(script);
  const entry = { apiKeyVariable: 'THE_KEY', prices: { m: prices } };
  const gateway = await startGateway({
    env: { THE_KEY: operatorKey },
    file: {
      a: { ...entry, wire: 'anthropic', baseUrl: provider.url },
      o: { ...entry, wire: 'openai-chat', baseUrl: provider.url },
      g: { ...entry, wire: 'gemini', baseUrl: provider.url },
    },
    model: models[wire],
  });
  const close = async (): Promise<void> => {
    await gateway.close();
    await provider.close();
  };
  return { provider, gateway, close };
}

async function usageOf(wire: Wire, reply: ScriptedReply, body: object): Promise<ModelUsage[]> {
  const { gateway, close } = await start(wire, () => reply);
  await gateway.send(paths[wire], { body: { model: 'm', ...body } });
  await close();
  return gateway.usages;
}

const expected = [
  { meter: 'model.input_tokens', quantity: 900, unitPricePerMillionMicros: 2_000_000n, costMicros: 1800n },
  { meter: 'model.cached_input_tokens', quantity: 100, unitPricePerMillionMicros: 500_000n, costMicros: 50n },
  { meter: 'model.output_tokens', quantity: 33, unitPricePerMillionMicros: 10_000_000n, costMicros: 330n },
];

for (const wire of wires) {
  for (const stream of [true, false]) {
    test(`${wire} (stream: ${stream}): input, cached input and output are counted and priced once`, async () => {
      const usages = await usageOf(
        wire,
        { text: ['a', 'b'], usage: { input: 1000, cachedInput: 100, output: 33 } },
        { stream },
      );
      equal(usages.length, 1);
      deepEqual(usages[0]?.entries, expected);
      equal(usages[0]?.priceVersion, 'operator');
    });
  }

  test(`${wire}: an answer without usage is counted by its bytes and marked as estimated`, async () => {
    const text = Array.from({ length: 40 }, () => 'word ');
    const [usage] = await usageOf(wire, { text, usage: null }, { stream: true, pad: 'x'.repeat(4000) });
    equal(usage?.priceVersion, 'operator+estimated');
    equal(usage?.entries.find(({ meter }) => meter === 'model.output_tokens')?.quantity, 50);
    ok((usage?.entries[0]?.quantity ?? 0) > 1000);
  });

  test(`${wire}: what was streamed before the client left is counted, and the provider’s call ends at once`, async () => {
    const text = Array.from({ length: 200 }, () => 'four');
    const { provider, gateway, close } = await start(wire, () => ({ text, gapMs: 10 }));
    const controller = new AbortController();
    let seen = 0;
    const sent = gateway.send(paths[wire], {
      body: { model: 'm', stream: true },
      signal: controller.signal,
      onData: (chunk) => {
        seen += chunk.toString().split('four').length - 1;
        if (seen >= 5) controller.abort();
      },
    });
    await sent.catch(() => {});
    const ended = await provider.requests[0]?.ended;
    await until('usage of the aborted call', () => gateway.usages.length === 1);
    await close();
    equal(ended?.complete, false);
    const output = gateway.usages[0]?.entries.find(({ meter }) => meter === 'model.output_tokens');
    ok(output && output.quantity >= 5 && output.quantity < 60, String(output?.quantity));
    ok(gateway.usages[0]?.priceVersion.includes('estimated'));
    ok(gateway.reservations.every(({ released }) => released));
  });
}

test('a stream that the provider cuts is cut for the client too, and counted', async () => {
  const { gateway, close } = await start('anthropic', () => ({
    text: ['one ', 'two ', 'three '],
    usage: { input: 50, output: 9 },
    cutAfterEvents: 4,
  }));
  const answer = await gateway.send(paths.anthropic, { body: { model: 'm', stream: true } });
  await until('usage of the cut call', () => gateway.usages.length === 1);
  await close();
  equal(answer.isComplete, false);
  equal(gateway.usages[0]?.entries[0]?.quantity, 50);
});

test('a client that leaves before the answer begins has used its prompt', async () => {
  const never = new Promise<never>(() => {});
  const { provider, gateway, close } = await start('openai-chat', () => never);
  const controller = new AbortController();
  const sent = gateway.send(paths['openai-chat'], {
    body: { model: 'm', stream: true, pad: 'x'.repeat(400) },
    headers: { 'x-berth-session': 's1' },
    signal: controller.signal,
  });
  await until('request at the provider', () => provider.requests.length === 1);
  deepEqual([gateway.calls, gateway.usages], [['s1'], []], 'that it was begun is known before what it used');
  controller.abort();
  await sent.catch(() => {});
  await until('usage', () => gateway.usages.length === 1);
  await close();
  ok((gateway.usages[0]?.entries[0]?.quantity ?? 0) > 100);
});

function scanned(
  wire: Wire,
  isSse: boolean,
  text: string,
  pieceBytes: number,
): { counts: TokenCounts; answerBytes: number } {
  const scan = new TokenScan(wire, isSse);
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += pieceBytes) scan.feed(bytes.subarray(at, at + pieceBytes));
  return { counts: scan.counts, answerBytes: scan.answerBytes };
}

test('the count is the same however the bytes are cut', async () => {
  for (const wire of wires) {
    const { provider, gateway, close } = await start(wire, () => ({
      text: ['say "hi" \\ ', '\n{"usage":{}}'],
      toolCalls: [{ name: 'f', input: { usage: { input_tokens: 1, prompt_tokens: 1 } } }],
      usage: { input: 77, cachedInput: 7, output: 5 },
    }));
    await gateway.send(paths[wire], { body: { model: 'm', stream: true } });
    const bytes = provider.requests[0]?.sent().toString() ?? '';
    await close();
    const whole = scanned(wire, true, bytes, bytes.length);
    for (const pieceBytes of [1, 2, 3, 7, 64]) deepEqual(scanned(wire, true, bytes, pieceBytes), whole);
    ok(whole.counts.input > 0 && whole.counts.output > 0);
  }
});

test('a model cannot lower its bill by writing a usage of its own', () => {
  const forged = [
    '{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":1,"output_tokens":1}}}],"usage":{"input_tokens":500,"output_tokens":60},"metadata":{"usage":{"output_tokens":0}}}',
    '{"usage":{"input_tokens":500,"output_tokens":60},"content":[{"usage":{"input_tokens":1}},{"input":[{"usage":{"output_tokens":2}}]}]}',
    '{"usage":{"input_tokens":500,"output_tokens":60,"extra":{"input_tokens":3,"output_tokens":[4]}},"x":"\\"usage\\":{\\"input_tokens\\":1}"}',
  ];
  for (const text of forged) {
    const { counts } = scanned('anthropic', false, text, 5);
    equal(counts.input, 500, text);
    equal(counts.output, 60, text);
  }
});

test('comments, blank lines, line ends of both kinds and broken events do not disturb the count', () => {
  const text =
    ': ping\r\n\r\nevent: x\r\ndata: {"usage":null}\r\n\r\ndata:{"broken": "tex\n\nid: 7\ndata: {"usage":{"prompt_tokens":9,"completion_tokens":4}}\n\ndata: [DONE]\n\n';
  const { counts } = scanned('openai-chat', true, text, 4);
  equal(counts.input, 9);
  equal(counts.output, 4);
});

test('reasoning that is left out of the answer’s count is taken from the total', () => {
  const none: TokenCounts = {
    input: -1,
    cached: -1,
    cacheWrite: -1,
    cacheWriteLong: -1,
    output: -1,
    reasoning: -1,
    total: -1,
  };
  const seen = { requestBytes: 0, answerBytes: 0, isComplete: true };
  equal(tokensUsed('openai-chat', { ...none, input: 10, output: 5, total: 40 }, seen).output, 30);
  equal(tokensUsed('gemini', { ...none, input: 10, output: 5, reasoning: 20, total: 35 }, seen).output, 25);
});

test('Anthropic’s cache writes are priced apart, for an hour at twice the input price', () => {
  const text =
    '{"usage":{"input_tokens":10,"cache_creation_input_tokens":300,"cache_read_input_tokens":50,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"output_tokens":1}}';
  const { counts } = scanned('anthropic', false, text, 9);
  const tokens = tokensUsed('anthropic', counts, { requestBytes: 0, answerBytes: 0, isComplete: true });
  const price = { input: 4n, cachedInput: 1n, cacheWrite: 5n, output: 20n, long: null };
  deepEqual(
    usageEntries(tokens, price).map(({ quantity, unitPricePerMillionMicros }) => [
      quantity,
      unitPricePerMillionMicros,
    ]),
    [
      [10, 4n],
      [100, 5n],
      [200, 8n],
      [50, 1n],
      [1, 20n],
    ],
  );
});

test('a long prompt has the prices of long prompts', () => {
  const price = catalogPrices.get('anthropic')?.get('claude-haiku-5-5') ?? null;
  ok(price?.long);
  const tokens = {
    input: 1,
    cachedInput: price.long.aboveInputTokens,
    cacheWrite: 0,
    cacheWriteLong: 0,
    output: 1,
    isEstimated: false,
  };
  equal(usageEntries(tokens, price)[0]?.unitPricePerMillionMicros, price.long.prices.input);
  equal(usageEntries({ ...tokens, input: 0 }, price)[0]?.unitPricePerMillionMicros, price.cachedInput);
});

test('an unknown price is null and not free, a cost is rounded to the nearest micro-dollar', () => {
  const tokens = {
    input: 3,
    cachedInput: 0,
    cacheWrite: 0,
    cacheWriteLong: 0,
    output: 0,
    isEstimated: false,
  };
  deepEqual(usageEntries(tokens, null), [
    { meter: 'model.input_tokens', quantity: 3, unitPricePerMillionMicros: null, costMicros: 0n },
  ]);
  const price = (input: bigint) => ({ input, cachedInput: 0n, cacheWrite: 0n, output: 0n, long: null });
  equal(usageEntries(tokens, price(166_666n))[0]?.costMicros, 0n);
  equal(usageEntries(tokens, price(166_667n))[0]?.costMicros, 1n);
});

test('dollars are read exactly', () => {
  equal(parseDollars('0.000001'), 1n);
  equal(parseDollars('15'), 15_000_000n);
  equal(parseDollars('2.5'), 2_500_000n);
  for (const text of ['', '-1', '1.', '.5', '1e3', '0.0000001', '1,5', 'NaN'])
    equal(parseDollars(text), null);
});

test('the estimate is the prompt’s bytes and the output limit at their prices', () => {
  const price = { input: 2_000_000n, cachedInput: 0n, cacheWrite: 0n, output: 10_000_000n, long: null };
  equal(estimateMicros(4000, 100, price), 3000n);
  equal(estimateMicros(4000, 100, null), 0n);
});
