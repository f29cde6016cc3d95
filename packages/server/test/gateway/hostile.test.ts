import { deepEqual, equal, ok } from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import type { Pace } from '../../src/domain/bucket.ts';
import { limits } from '../../src/domain/limits.ts';
import { everyWire, sandboxToken, startGateway } from '../support/gateway.ts';
import type { TestGateway } from '../support/gateway.ts';
import { startScriptedModel } from '../support/scripted-model.ts';

async function withGateway<T>(
  use: (gateway: TestGateway, calls: () => number) => Promise<T>,
  options: {
    secretKeys?: Record<string, string>;
    file?: (url: string) => unknown;
    model?: string;
    requestPace?: Pace;
  } = {},
): Promise<T> {
  const provider = await startScriptedModel(() => ({ text: ['ok'] }));
  const gateway = await startGateway({
    env: everyWire(provider),
    model: options.model ?? 'anthropic/m',
    ...(options.secretKeys ? { secretKeys: options.secretKeys } : {}),
    ...(options.requestPace ? { gateway: { requestPace: options.requestPace } } : {}),
    ...(options.file ? { file: options.file(provider.url) } : {}),
  });
  try {
    return await use(gateway, () => provider.requests.length);
  } finally {
    await gateway.close();
    await provider.close();
  }
}

/** Sends a request line as it is, which no client library would. */
function sendRaw(socketPath: string, target: string, method = 'POST'): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath);
    const chunks: Buffer[] = [];
    const body = '{"model":"m"}';
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('close', () => resolve(Buffer.concat(chunks).toString()));
    socket.on('error', reject);
    socket.write(
      `${method} ${target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer ${sandboxToken}\r\n` +
        `content-length: ${body.length}\r\n\r\n${body}`,
    );
  });
}

const refusedTargets: [string, string][] = [
  ['GET', '/llm/anthropic/v1/messages'],
  ['DELETE', '/llm/anthropic/v1/messages'],
  ['POST', '/llm/anthropic/v1/models'],
  ['POST', '/llm/anthropic/v1/files'],
  ['POST', '/llm/anthropic/v1/messages/batches'],
  ['GET', '/llm/anthropic/v1/organizations/users'],
  ['GET', '/llm/openai/v1/responses/resp_1'],
  ['POST', '/llm/openai/v1/responses/resp_1/cancel'],
  ['POST', '/llm/openai/v1/images/generations'],
  ['POST', '/llm/openai/v1/fine_tuning/jobs'],
  ['POST', '/llm/gemini/v1beta/cachedContents'],
  ['POST', '/llm/gemini/v1beta/models/m:batchGenerateContent'],
  ['POST', '/llm/gemini/v1beta/models/m:toString'],
  ['POST', '/llm/gemini/v1beta/tunedModels/x:generateContent'],
  ['POST', '/llm/anthropic/v1/../v1/messages'],
  ['POST', '/llm/anthropic/./v1/messages'],
  ['POST', '/llm/anthropic/v1//messages'],
  ['POST', '/llm/anthropic/v1/messages/'],
  ['POST', '/llm/anthropic/v1%2Fmessages'],
  ['POST', '/llm/anthropic/%2e%2e/v1/messages'],
  ['POST', '/llm/anthropic/v1/messages;x=1'],
  ['POST', '/llm/anthropic\\v1\\messages'],
  ['POST', '/llm/x/../../etc/passwd'],
  ['POST', '/llm/constructor/v1/messages'],
  ['POST', '/llm/anthropic/__proto__'],
  ['POST', '/llm/anthropic'],
  ['POST', '/llm'],
  ['POST', '/'],
  ['POST', '//llm/anthropic/v1/messages'],
  ['POST', 'http://169.254.169.254/llm/anthropic/v1/messages'],
  ['POST', '/llm/v1/messages'],
  ['POST', '/llm/v1/responses'],
];

test('everything outside of the allow-list is 404 and reaches no provider', async () => {
  await withGateway(async (gateway, calls) => {
    for (const [method, target] of refusedTargets) {
      const answer = await sendRaw(gateway.socketPath, target, method);
      ok(answer.startsWith('HTTP/1.1 404 '), `${method} ${target}: ${answer.slice(0, 120)}`);
    }
    equal(calls(), 0);
  });
});

test('a sandbox that asks faster than its pace is told to wait in the shape of its wire, and its connection ends', async () => {
  await withGateway(
    async (gateway, calls) => {
      const ask = (path: string, headers = {}) =>
        gateway.send(path, {
          headers: { connection: 'keep-alive', ...headers },
          body: { model: 'm', messages: [] },
        });
      for (let i = 0; i < 2; i += 1) equal((await ask('/llm/anthropic/v1/messages')).status, 200);
      equal((await gateway.send('/llm/openai/v1/models')).status, 200);
      for (const path of ['/llm/anthropic/v1/messages', '/llm/openai/v1/chat/completions']) {
        const refused = await ask(path);
        const { error } = JSON.parse(refused.text) as {
          error: { code: string; message: string; type: string };
        };
        deepEqual(
          [refused.status, refused.headers['retry-after'], refused.headers.connection],
          [429, '1', 'close'],
        );
        deepEqual([error.code, error.type], ['too_busy', 'rate_limit_error']);
        ok(error.message.includes('try again'), error.message);
      }
      // Also what is refused anyway is refused so.
      equal((await ask('/llm/anthropic/v1/messages', { authorization: 'Bearer x' })).status, 429);
      equal((await ask('/llm/anthropic/v1/files')).status, 429);
      equal((await ask('/llm/anthropic/v1/messages?key=abc')).status, 429);
      equal(calls(), 2);
    },
    { requestPace: { burst: 3, perSecond: 0.001 } },
  );
});

test('a sandbox may ask for as much as its busiest harness does: all its turns at once, several times a second', () => {
  const { burst, perSecond } = limits.gatewayRequests;
  ok(burst >= 2 * limits.gatewayConnections && perSecond >= 1_000);
});

test('a key in the query is refused, whatever it is called', async () => {
  await withGateway(async (gateway, calls) => {
    for (const query of ['?key=abc', '?alt=sse&key=abc', '?access_token=abc', '?%6bey=abc', '?a=b#c']) {
      const answer = await sendRaw(gateway.socketPath, `/llm/anthropic/v1/messages${query}`);
      ok(answer.startsWith('HTTP/1.1 400 '), `${query}: ${answer.slice(0, 120)}`);
    }
    equal(calls(), 0);
  });
});

const refusedBodies = [
  '',
  'null',
  '[]',
  '"text"',
  '{"model":"m"',
  '{"model":"m"}x',
  '{"model":"m"}{"model":"n"}',
  '{"model":"m","model":"expensive"}',
  '{"model":"m","\\u006dodel":"expensive"}',
  '{"model":"m","Model":"expensive"}',
  '{"model":"m","MODEL":"expensive"}',
  '{"model":"m","\u017ftream":true}',
  '{"model":"m",/* "model":"x" */"a":1}',
  "{'model':'m'}",
  '{"model":"m",}',
  '{"model":["m"]}',
  '{"model":7}',
  '{"model":""}',
  '{"model":"m","a":NaN}',
  '{"model":"m","a":[1,2}',
  '{"model":"m","a":{"b":1]}',
  '{"model":"m","a":01}',
  '\ufeff{"model":"m"}',
  `{"model":"m","a":${'['.repeat(5000)}${']'.repeat(5000)}}`,
];

test('a body that two parsers could read in two ways is refused with 400', async () => {
  await withGateway(async (gateway, calls) => {
    for (const body of refusedBodies) {
      const answer = await gateway.send('/llm/anthropic/v1/messages', { body });
      equal(answer.status, 400, body.slice(0, 80));
      equal(JSON.parse(answer.text).error.type, 'invalid_request_error');
    }
    equal(calls(), 0);
  });
});

test('the same names deeper inside, and quotes inside of texts, are no concern', async () => {
  await withGateway(async (gateway) => {
    const body =
      '{"messages":[{"model":"x","Model":"y","content":"\\"model\\":\\"z\\", \\\\"}],"model":"m","metadata":{"model":"q"}}';
    equal((await gateway.send('/llm/anthropic/v1/messages', { body })).status, 200);
  });
});

const sharedStateBodies = [
  { previous_response_id: 'resp_1' },
  { conversation: 'conv_1' },
  { background: true },
  { prompt: { id: 'pmpt_1' } },
  { container: 'container_1' },
  { models: ['a', 'b'] },
];

test('what a provider keeps under the shared key is closed, and open on the agent’s own key', async () => {
  const path = '/llm/openai/v1/responses';
  const statuses = async (gateway: TestGateway) => {
    const all: number[] = [];
    for (const extra of sharedStateBodies)
      all.push((await gateway.send(path, { body: { model: 'm', ...extra } })).status);
    return all;
  };
  deepEqual(
    await withGateway(statuses, { model: 'openai/m' }),
    sharedStateBodies.map(() => 403),
  );
  deepEqual(
    await withGateway(statuses, { model: 'openai/m', secretKeys: { OPENAI_API_KEY: 'own' } }),
    sharedStateBodies.map(() => 200),
  );
  await withGateway(
    async (gateway) => {
      const body = { model: 'm', previous_response_id: null, background: false, conversation: null };
      equal((await gateway.send(path, { body })).status, 200);
    },
    { model: 'openai/m' },
  );
});

const serverTools: [string, string, object][] = [
  [
    'anthropic/m',
    '/llm/anthropic/v1/messages',
    { tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
  ],
  ['anthropic/m', '/llm/anthropic/v1/messages', { tools: [{ type: 'code_execution_20250825', name: 'x' }] }],
  ['anthropic/m', '/llm/anthropic/v1/messages', { mcp_servers: [{ type: 'url', url: 'https://x' }] }],
  ['openai/m', '/llm/openai/v1/responses', { tools: [{ type: 'mcp', server_url: 'https://x' }] }],
  [
    'openai/m',
    '/llm/openai/v1/responses',
    { tools: [{ type: 'function', name: 'f' }, { type: 'web_search' }] },
  ],
  ['openai/m', '/llm/openai/v1/chat/completions', { web_search_options: { x: 1 } }],
  ['gemini/m', '/llm/gemini/v1beta/models/m:generateContent', { tools: [{ google_search: {} }] }],
  [
    'gemini/m',
    '/llm/gemini/v1beta/models/m:generateContent',
    { tools: [{ functionDeclarations: [], codeExecution: {} }] },
  ],
];

test('tools that run at the provider are refused, also on the agent’s own key', async () => {
  for (const [model, path, extra] of serverTools) {
    await withGateway(
      async (gateway, calls) => {
        const answer = await gateway.send(path, { body: { model: 'm', ...extra } });
        equal(answer.status, 403, JSON.stringify(extra));
        ok(answer.text.includes('allowServerTools'));
        equal(calls(), 0);
      },
      { model, secretKeys: { OPENAI_API_KEY: 'own' } },
    );
  }
});

test('tools of the harness pass on every wire', async () => {
  const local: [string, string, object][] = [
    [
      'anthropic/m',
      '/llm/anthropic/v1/messages',
      {
        tools: [
          { name: 'bash', input_schema: {} },
          { type: 'bash_20250124', name: 'bash' },
        ],
      },
    ],
    [
      'openai/m',
      '/llm/openai/v1/chat/completions',
      { tools: [{ type: 'function', function: { name: 'bash' } }] },
    ],
    ['openai/m', '/llm/openai/v1/responses', { tools: [{ type: 'custom', name: 'apply_patch' }] }],
    ['gemini/m', '/llm/gemini/v1beta/models/m:generateContent', { tools: [{ functionDeclarations: [] }] }],
  ];
  for (const [model, path, extra] of local) {
    await withGateway(
      async (gateway) => {
        equal((await gateway.send(path, { body: { model: 'm', ...extra } })).status, 200, path);
      },
      { model },
    );
  }
});

test('an operator can open the provider’s own tools', async () => {
  await withGateway(
    async (gateway) => {
      const body = { model: 'm', tools: [{ type: 'web_search_20250305', name: 'web_search' }] };
      equal((await gateway.send('/llm/own/v1/messages', { body })).status, 200);
    },
    { model: 'own/m', file: (url) => ({ own: { wire: 'anthropic', baseUrl: url, allowServerTools: true } }) },
  );
});

test('a body over 32 MB is 413, announced or not, and a compressed one 415', async () => {
  await withGateway(async (gateway, calls) => {
    const large = Buffer.alloc(33 * 1024 * 1024, ' ');
    equal((await gateway.send('/llm/anthropic/v1/messages', { body: large })).status, 413);
    const headers = { 'transfer-encoding': 'chunked' };
    const chunked = await gateway.send('/llm/anthropic/v1/messages', { body: large, headers });
    equal(chunked.status, 413);
    const encoded = await gateway.send('/llm/anthropic/v1/messages', {
      body: { model: 'm' },
      headers: { 'content-encoding': 'gzip' },
    });
    equal(encoded.status, 415);
    equal(calls(), 0);
  });
});
