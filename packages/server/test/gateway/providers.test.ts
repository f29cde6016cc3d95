import { deepEqual, equal, ok, throws } from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ProviderConfigError } from '../../src/gateway/provider.ts';
import { readProviders } from '../../src/gateway/providers.ts';
import { startGateway } from '../support/gateway.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import { inTime, until } from '../support/until.ts';

const file = (entries: object): string => JSON.stringify(entries);

test('base addresses are understood with and without the version that vendors’ clients put in', () => {
  const base = (name: string, variable: string, value: string) =>
    readProviders({ [variable]: value }, null).get(name)?.baseUrl;
  equal(base('anthropic', 'ANTHROPIC_BASE_URL', 'http://h:1/x/v1/'), 'http://h:1/x');
  equal(base('anthropic', 'ANTHROPIC_BASE_URL', 'http://h:1'), 'http://h:1');
  equal(base('openai', 'OPENAI_BASE_URL', 'http://h:1'), 'http://h:1/v1');
  equal(base('openai', 'OPENAI_BASE_URL', 'http://h:1/api/v3/'), 'http://h:1/api/v3');
  equal(base('gemini', 'GEMINI_BASE_URL', 'http://h:1/v1beta/openai/'), 'http://h:1');
  equal(base('ollama', 'OLLAMA_BASE_URL', 'http://h:1'), 'http://h:1/v1');
});

const badVariables: [Record<string, string>, string][] = [
  [{ ANTHROPIC_BASE_URL: 'api.anthropic.com' }, 'ANTHROPIC_BASE_URL'],
  [{ OPENAI_BASE_URL: 'ftp://h/v1' }, 'OPENAI_BASE_URL'],
  [{ OPENAI_BASE_URL: 'http://user:pass@h/v1' }, 'OPENAI_BASE_URL'],
  [{ GROQ_BASE_URL: 'http://h/v1?x=1' }, 'GROQ_BASE_URL'],
  [{ OPENAI_API_KEY: 'two words' }, 'OPENAI_API_KEY'],
  [{ OPENAI_API_KEY: 'line\nbreak' }, 'OPENAI_API_KEY'],
];

test('a variable that cannot be used is refused by its name, without its value when it is a key', () => {
  for (const [env, name] of badVariables) {
    throws(
      () => readProviders(env, null),
      (error: Error) => {
        ok(error instanceof ProviderConfigError);
        ok(error.message.startsWith(name), error.message);
        ok(!error.message.includes('two words') && !error.message.includes('pass'));
        return true;
      },
    );
  }
});

const good = { wire: 'openai-chat', baseUrl: 'http://127.0.0.1:9/v1' };
const badFiles: [string, string][] = [
  ['{', 'BERTH_MODEL_PROVIDERS must name a JSON file'],
  ['[]', 'BERTH_MODEL_PROVIDERS must hold an object'],
  [file({ V1: good }), 'V1'],
  [file({ v1: good }), 'v1'],
  [file({ demo: good }), 'demo'],
  [file({ a: null }), 'a'],
  [file({ a: { ...good, wire: 'soap' } }), 'a.wire'],
  [file({ a: { ...good, wire: 'toString' } }), 'a.wire'],
  [file({ a: { wire: 'anthropic' } }), 'a.baseUrl'],
  [file({ a: { ...good, baseUrl: 'nowhere' } }), 'a.baseUrl'],
  [file({ a: { ...good, apiKeyVariable: 'a-b' } }), 'a.apiKeyVariable'],
  [file({ a: { ...good, apiKeyFile: '/nonexistent/key' } }), 'a.apiKeyFile'],
  [file({ a: { ...good, headers: { 'a b': 'x' } } }), 'a.headers.a b'],
  [file({ a: { ...good, headers: { a: 'x\ny' } } }), 'a.headers.a'],
  [file({ a: { ...good, models: 'm' } }), 'a.models'],
  [file({ a: { ...good, prices: { m: { input: 1, output: '2' } } } }), 'a.prices.m.input'],
  [file({ a: { ...good, prices: { m: { input: '1' } } } }), 'a.prices.m.output'],
  [file({ a: { ...good, prices: { m: { input: '1', output: '-2' } } } }), 'a.prices.m.output'],
  [file({ a: { ...good, streamOptions: 'no' } }), 'a.streamOptions'],
  [file({ a: { ...good, apiKey: 'value' } }), 'a.apiKey'],
];

test('a provider file that cannot be used is refused by the field', () => {
  for (const [text, where] of badFiles) {
    throws(
      () => readProviders({}, text),
      (error: Error) => {
        ok(error instanceof ProviderConfigError);
        ok(error.message.startsWith('BERTH_MODEL_PROVIDERS') && error.message.includes(where), error.message);
        return true;
      },
    );
  }
});

test('a key may come from a file, with its line end', () => {
  const directory = mkdtempSync(join(tmpdir(), 'provider-'));
  const path = join(directory, 'key');
  writeFileSync(path, 'from-file\n');
  const provider = readProviders({}, file({ a: { ...good, apiKeyFile: path } })).get('a');
  rmSync(directory, { recursive: true });
  equal(provider?.key, 'from-file');
  equal(provider?.needsKey, true);
});

test('fixed headers of the operator go with every request', async () => {
  const model = await startScriptedModel(() => ({ text: ['x'] }));
  const gateway = await startGateway({
    env: {},
    file: { own: { wire: 'openai-chat', baseUrl: model.url, headers: { 'X-Team': 'blue' } } },
    model: 'own/m',
  });
  const answer = await gateway.send('/llm/own/v1/chat/completions', { body: { model: 'm' } });
  await gateway.close();
  await model.close();
  equal(answer.status, 200);
  equal(model.requests[0]?.headers['x-team'], 'blue');
  equal(model.requests[0]?.headers['authorization'], undefined);
});

async function defaultModel(env: Record<string, string>, entries?: object, wanted?: string): Promise<string> {
  const gateway = await startGateway({
    env,
    model: 'demo/guide',
    ...(entries ? { file: entries } : {}),
    gateway: { defaultModel: wanted ?? null },
  });
  const model = gateway.gateway.defaultModel();
  await gateway.close();
  return model;
}

test('the default model is the configured one, else the first provider’s with a key, else the demonstration', async () => {
  equal(await defaultModel({}), 'demo/guide');
  ok((await defaultModel({ OPENAI_API_KEY: 'k' })).startsWith('openai/'));
  ok((await defaultModel({ OPENAI_API_KEY: 'k', ANTHROPIC_API_KEY: 'k' })).startsWith('anthropic/'));
  equal(await defaultModel({ OPENAI_API_KEY: 'k' }, { mine: { ...good, defaultModel: 'm' } }), 'mine/m');
  ok((await defaultModel({ OPENAI_API_KEY: 'k' }, { mine: good })).startsWith('openai/'));
  equal(await defaultModel({ OPENAI_API_KEY: 'k' }, undefined, 'groq/x'), 'groq/x');
});

test('providers tell their wire and whether they can be used, and never a key', async () => {
  const gateway = await startGateway({ env: { ANTHROPIC_API_KEY: 'the-key' }, model: 'demo/guide' });
  const providers = gateway.gateway.providers();
  await gateway.close();
  const anthropic = providers.find(({ name }) => name === 'anthropic');
  equal(anthropic?.wire, 'anthropic');
  equal(anthropic?.hasKey, true);
  equal(anthropic?.keyVariable, 'ANTHROPIC_API_KEY');
  equal(providers.find(({ name }) => name === 'openai')?.hasKey, false);
  equal(providers.at(-1)?.name, 'demo');
  ok(!JSON.stringify(providers).includes('the-key'));
});

async function fakeOllama(answer: () => string): Promise<{ url: string; close: () => Promise<void> }> {
  const server = createServer((request, response) => {
    response.writeHead(request.url === '/api/tags' ? 200 : 404);
    response.end(answer());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

test('Ollama is found with its newest model, and what is no Ollama is not taken for it', async () => {
  const answers = [
    ['{"models":[{"name":"qwen3:8b"},{"name":"old:1b"}]}', 'ollama/qwen3:8b'],
    ['{"models":[]}', 'demo/guide'],
    ['<html>', 'demo/guide'],
    ['{"models":[{"name":7},{"name":"a b"}]}', 'demo/guide'],
  ];
  for (const [answer = '', expected] of answers) {
    const ollama = await fakeOllama(() => answer);
    const gateway = await startGateway({
      env: { OLLAMA_BASE_URL: ollama.url },
      model: 'demo/guide',
      gateway: { detectOllama: true },
    });
    // One that is too slow at the start is found by a later look.
    await until(`it is ${expected}`, () => gateway.gateway.defaultModel() === expected);
    await gateway.close();
    await ollama.close();
  }
});

test('an Ollama that hangs delays the start by no more than its time limit', async () => {
  const server = createServer(() => {});
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const starting = startGateway({
    env: { OLLAMA_BASE_URL: url },
    model: 'demo/guide',
    gateway: { detectOllama: true },
  });
  const gateway = await inTime('it has started', starting);
  await gateway.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  equal(gateway.gateway.defaultModel(), 'demo/guide');
});

test('an agent of Ollama needs no key and gets the Chat wire', async () => {
  const model = await startScriptedModel(() => ({ text: ['x'] }));
  const gateway = await startGateway({ env: { OLLAMA_BASE_URL: model.url }, model: 'ollama/qwen3:8b' });
  const answer = await gateway.send('/llm/ollama/v1/chat/completions', {
    body: { model: 'qwen3:8b', stream: true },
  });
  await until('usage', () => gateway.usages.length === 1);
  await gateway.close();
  await model.close();
  equal(answer.status, 200);
  equal(model.requests[0]?.path, '/v1/chat/completions');
  deepEqual(gateway.usages[0]?.priceVersion, 'unknown');
});
