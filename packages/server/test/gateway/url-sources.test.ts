import { deepEqual, equal, match } from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { noEgress } from '../../src/domain/egress-policy.ts';
import type { EgressPolicy } from '../../src/domain/egress-policy.ts';
import { maxSourceHosts } from '../../src/gateway/url-sources.ts';
import { everyWire, startGateway } from '../support/gateway.ts';
import type { TestGateway } from '../support/gateway.ts';
import { startScriptedModel } from '../support/scripted-model.ts';

type Wire = 'anthropic' | 'openai' | 'gemini';

const evil = 'https://attacker.example/leak?data=secret';
const bytes = 'data:image/png;base64,iVBORw0KGgo=';

let provider: Awaited<ReturnType<typeof startScriptedModel>>;
const gateways = new Map<Wire, TestGateway>();
let policy: EgressPolicy = noEgress;
let reads = 0;

before(async () => {
  provider = await startScriptedModel(() => ({ text: ['ok'] }));
  const env = everyWire(provider);
  const readPolicy = async () => ((reads += 1), policy);
  for (const wire of ['anthropic', 'openai', 'gemini'] as const)
    gateways.set(wire, await startGateway({ env, model: `${wire}/m`, gateway: { readPolicy } }));
});
after(async () => {
  for (const gateway of gateways.values()) await gateway.close();
  await provider.close();
});

const paths = {
  messages: ['anthropic', '/llm/anthropic/v1/messages'],
  tokens: ['anthropic', '/llm/anthropic/v1/messages/count_tokens'],
  chat: ['openai', '/llm/openai/v1/chat/completions'],
  responses: ['openai', '/llm/openai/v1/responses'],
  embeddings: ['openai', '/llm/openai/v1/embeddings'],
  gemini: ['gemini', '/llm/gemini/v1beta/models/m:generateContent'],
} as const;

async function post(to: keyof typeof paths, body: unknown) {
  const [wire, path] = paths[to];
  const before = provider.requests.length;
  const answer = await gateways.get(wire)!.send(path, { body });
  return { ...answer, reached: provider.requests.length - before };
}

const user = (content: unknown) => ({ model: 'm', max_tokens: 9, messages: [{ role: 'user', content }] });
const image = (url: unknown) => user([{ type: 'image_url', image_url: { url } }]);
const source = (url: string) => user([{ type: 'image', source: { type: 'url', url } }]);
const input = (item: object) => ({ model: 'm', input: [{ role: 'user', content: [item] }] });

/** Each way in which a request names what the provider fetches. */
const ways = (url: string): [keyof typeof paths, unknown][] => [
  ['messages', source(url)],
  ['tokens', source(url)],
  ['messages', user([{ type: 'document', source: { type: 'url', url } }])],
  [
    'messages',
    user([
      { type: 'tool_result', tool_use_id: 'x', content: [{ type: 'image', source: { type: 'url', url } }] },
    ]),
  ],
  ['chat', image(url)],
  ['chat', user([{ type: 'image_url', image_url: url }])],
  ['chat', user([{ type: 'video_url', video_url: { url } }])],
  ['chat', user([{ type: 'document_url', document_url: url }])],
  ['chat', user([{ type: 'file', file: { filename: 'a.pdf', file_data: url } }])],
  ['responses', input({ type: 'input_image', image_url: url })],
  ['responses', input({ type: 'input_file', file_url: url })],
  ['embeddings', { model: 'm', input: [{ type: 'image_url', image_url: { url } }] }],
  ['gemini', { contents: [{ parts: [{ fileData: { fileUri: url, mimeType: 'image/png' } }] }] }],
  ['gemini', { contents: [{ parts: [{ file_data: { file_uri: url } }] }] }],
];

const closed: EgressPolicy = { ...noEgress, mode: 'list', allow: ['good.example'] };

test('what a provider would fetch for an agent that may not reach it is refused on every wire, with the remedy, and reaches nobody', async () => {
  for (const [to, body] of ways(evil)) {
    policy = noEgress;
    const off = await post(to, body);
    deepEqual([off.status, off.reached], [400, 0], `${to} ${JSON.stringify(body)} ${off.text}`);
    match(off.text, /berth egress mode agent list/);
    policy = closed;
    const unlisted = await post(to, body);
    deepEqual([unlisted.status, unlisted.reached], [400, 0]);
    match(unlisted.text, /berth egress allow agent attacker\.example:443/);
    match(unlisted.text, /send the bytes themselves/);
    policy = { ...noEgress, mode: 'open', deny: ['attacker.example'] };
    equal((await post(to, body)).status, 400);
  }
  const { error } = JSON.parse((await post('messages', source(evil))).text) as { error: { type: string } };
  equal(error.type, 'invalid_request_error');
});

test('what the agent may reach itself, and bytes, go through', async () => {
  policy = closed;
  for (const [to, body] of ways('https://good.example/a.png?b=c')) {
    const answer = await post(to, body);
    deepEqual([answer.status, answer.reached], [200, 1], `${to} ${answer.text}`);
  }
  policy = { ...noEgress, mode: 'open' };
  for (const [to, body] of ways(evil)) equal((await post(to, body)).status, 200);
  policy = noEgress;
  reads = 0;
  for (const [to, body] of ways(bytes)) equal((await post(to, body)).status, 200, to);
  equal((await post('chat', user([{ type: 'file', file: { file_data: 'JVBERi0xLjQ=' } }]))).status, 200);
  equal(reads, 0, 'nobody asks for the policy where nothing is fetched');
});

test('an address that is only spoken of is no source: texts, arguments, results and schemas of tools', async () => {
  policy = noEgress;
  reads = 0;
  const schema = { type: 'object', properties: { url: { type: 'string', default: evil }, image_url: evil } };
  const spoken = JSON.stringify(image(evil));
  const passing: [keyof typeof paths, unknown][] = [
    ['messages', user(spoken)],
    [
      'messages',
      {
        ...user([
          {
            type: 'tool_use',
            id: 'x',
            name: 'fetch',
            input: { url: evil, source: { type: 'url', url: evil } },
          },
          { type: 'text', text: spoken, citations: [{ type: 'web_search_result_location', url: evil }] },
        ]),
        tools: [{ name: 'fetch', input_schema: schema }],
      },
    ],
    [
      'chat',
      {
        ...user(spoken),
        tools: [{ type: 'function', function: { name: 'fetch', parameters: schema } }],
        metadata: { page_url: evil },
      },
    ],
    [
      'responses',
      { model: 'm', input: [{ type: 'function_call', arguments: JSON.stringify({ image_url: evil }) }] },
    ],
    [
      'responses',
      input({ type: 'output_text', text: spoken, annotations: [{ type: 'url_citation', url: evil }] }),
    ],
    [
      'gemini',
      {
        contents: [
          { parts: [{ functionCall: { name: 'f', args: { fileUri: evil } } }] },
          { parts: [{ functionResponse: { name: 'f', response: { fileUri: evil } } }] },
        ],
      },
    ],
  ];
  for (const [to, body] of passing) {
    const answer = await post(to, body);
    deepEqual([answer.status, answer.reached], [200, 1], `${to} ${JSON.stringify(body)} ${answer.text}`);
  }
  equal(reads, 0);
});

test('no spelling gets past: escapes, another case, fields that are there twice, spaces, and addresses with two readings', async () => {
  policy = closed;
  const text = JSON.stringify(image(evil));
  const spelled = [
    text.replace('"url"', String.raw`"\u0075rl"`),
    text.replace('"image_url":', String.raw`"image\u005furl":`),
    text.replace('"url"', '"URL"'),
    text.replace('https:', String.raw`\u0068ttps\u003a`),
    text.replace('//', String.raw`\/\/`),
    text.replace('"https', String.raw`" \n\thttps`),
    text.replace('https', String.raw`ht\ntps`),
    text.replace('https', 'HTTPS'),
    text.replace('"url":', ` "url" :\n\t`),
    text.replace('{"url":', '{"url":"https://good.example/",  "url":'),
    text.replace(`"${evil}"`, `"${evil}","url":"${bytes}"`),
    text.replace(`{"url":"${evil}"}`, `{"url":"${evil}"},"image_url":{"url":"${bytes}"}`),
    text.replace('"url":', String.raw`"url":"\q","url":`),
    ...[
      'https://good.example@attacker.example/',
      'https://attacker.example\\@good.example/',
      'https://good.example\\.attacker.example/',
      'https://good.example:443@attacker.example/',
      'https:attacker.example/',
      'https:///attacker.example/',
      'https://good.example%2eattacker.example/',
      'https://good.example.attacker.example/',
      'https://good.example:8443/',
      'https://2130706433/',
      'http://169.254.169.254/latest',
      'http://[::1]/',
      'ftp://good.example/a',
      'gs://bucket/a',
      'file:///etc/passwd',
    ].map((url) => JSON.stringify(image(url))),
  ];
  for (const body of spelled) {
    const answer = await post('chat', body);
    deepEqual([answer.status, answer.reached], [400, 0], `${body} ${answer.text}`);
  }
  const twice = JSON.stringify(source(evil)).replace(
    '"source":',
    `"source":{"type":"url","url":"https://good.example/"},"\\u0073ource":`,
  );
  equal((await post('messages', twice)).status, 400);
});

test('the sources of one request may name a hundred hosts', async () => {
  policy = { ...closed, allow: ['*.good.example'] };
  const many = (count: number) =>
    user(
      Array.from({ length: count * 2 }, (_, index) => ({
        type: 'image_url',
        image_url: { url: `https://h${index % count}.good.example/${index}` },
      })),
    );
  equal((await post('chat', many(maxSourceHosts))).status, 200);
  const refused = await post('chat', many(maxSourceHosts + 1));
  deepEqual([refused.status, refused.reached], [400, 0]);
  match(refused.text, /more than 100 hosts/);
});
