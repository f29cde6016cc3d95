import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText, type ModelMessage } from 'ai';
import OpenAI, { type APIError } from 'openai';
import { hostFetch } from '../support/host-fetch.ts';
import { endSharedWorld, sharedWorld, type World } from '../support/scenario-world.ts';
import { logOf } from '../support/scenario.ts';
import { until } from '../support/until.ts';

let world: World;
before(async () => {
  world = await sharedWorld();
});
after(endSharedWorld);

const baseURL = (agentId = world.agentId) => `http://${agentId}.localhost:${world.service.port}/v1`;
const client = (apiKey = world.keys.agentUse, agentId = world.agentId) =>
  new OpenAI({ baseURL: baseURL(agentId), apiKey, fetch: hostFetch(world.service.port), maxRetries: 0 });
const model = () => world.agentId;
const user = (content: string) => ({ role: 'user' as const, content });

const messagesOf = async (conversationId: string) =>
  (await world.call('GET', `/v1/conversations/${conversationId}/messages?limit=100`)).body.messages as {
    role: string;
    content: string;
  }[];

test('the models of an agent’s address are the agent', async () => {
  const models = await Array.fromAsync(client().models.list());
  assert.deepEqual(
    models.map(({ id, object, owned_by }) => [id, object, owned_by]),
    [[world.agentId, 'model', 'berth']],
  );
  assert.equal((await client().models.retrieve(world.agentId)).id, world.agentId);
});

test('a chat completion is a run, with its answer and its usage', async () => {
  const { data, response } = await client()
    .chat.completions.create({ model: model(), messages: [user('hello there')], temperature: 0.2 })
    .withResponse();
  assert.equal(data.choices[0]!.message.content, 'HELLO THERE');
  assert.equal(data.choices[0]!.finish_reason, 'stop');
  const runId = response.headers.get('x-run-id')!;
  const run = (await world.call('GET', `/v1/runs/${runId}`)).body.run;
  assert.equal(run.status, 'completed');
  assert.ok(data.usage!.prompt_tokens > 0);
  assert.deepEqual(
    [data.usage!.prompt_tokens, data.usage!.completion_tokens],
    [run.usage.inputTokens, run.usage.outputTokens],
  );
  assert.match(response.headers.get('ratelimit') ?? '', /^"default"/);
});

test('a stream of chunks gives the text as it comes, then usage and the end', async () => {
  const stream = await client().chat.completions.create({
    model: 'agent',
    messages: [user('count: 5 5')],
    stream: true,
    stream_options: { include_usage: true },
  });
  const chunks = await Array.fromAsync(stream);
  assert.equal(chunks[0]!.choices[0]!.delta.role, 'assistant');
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');
  assert.equal(text, '1 2 3 4 5 ');
  assert.equal(chunks.findLast((chunk) => chunk.choices.length > 0)!.choices[0]!.finish_reason, 'stop');
  assert.ok(chunks.at(-1)!.usage!.total_tokens > 0);
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
  // The client would take a stream that just ends for whole too.
  const body = { model: 'agent', messages: [user('count: 2 5')], stream: true };
  const raw = await hostFetch(world.service.port)(`${baseURL()}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${world.keys.agentUse}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const frames = (await raw.text()).split('\n\n').filter((frame) => frame.startsWith('data: '));
  assert.equal(frames.filter((frame) => frame === 'data: [DONE]').length, 1);
  assert.equal(frames.at(-1), 'data: [DONE]');
});

test('a client that keeps the history has it told to the agent, in a conversation of its own', async () => {
  const { data, response } = await client()
    .chat.completions.create({
      model: model(),
      messages: [
        { role: 'system', content: 'Be brief.' },
        user('first'),
        { role: 'assistant', content: 'FIRST' },
        { role: 'user', content: [{ type: 'text', text: 'second' }] },
      ],
    })
    .withResponse();
  const [, question] = await messagesOf(response.headers.get('x-conversation-id')!);
  assert.equal(
    question!.content,
    '[Instructions of the caller]\nBe brief.\n\n[Earlier in this conversation]\nUser: first\n\nAssistant: FIRST\n\n[Message to answer]\nsecond',
  );
  assert.match(data.choices[0]!.message.content!, /SECOND$/);
});

test('a conversation that is named is gone on with, and told only what is new', async () => {
  const first = await client()
    .chat.completions.create({ model: model(), messages: [user('one')] })
    .withResponse();
  const conversationId = first.response.headers.get('x-conversation-id')!;
  await client().chat.completions.create({
    model: model(),
    messages: [user('one'), { role: 'assistant', content: 'ONE' }, user('two')],
    metadata: { conversation_id: conversationId },
  });
  assert.deepEqual(
    (await messagesOf(conversationId)).map((message) => message.content),
    ['TWO', 'two', 'ONE', 'one'],
  );
  const foreign = await world.call('POST', '/api/v1/chat/send', {
    agentId: world.otherAgentId,
    content: 'x',
  });
  await assert.rejects(
    client(world.keys.owner).chat.completions.create({
      model: model(),
      messages: [user('x')],
      metadata: { conversation_id: foreign.body.conversationId },
    }),
    (error: APIError) => error.status === 404,
  );
});

test('errors are OpenAI’s object, with what is wrong and where', async () => {
  const errorOf = async (work: Promise<unknown>) => {
    const error = await work.then(() => null).catch((caught: unknown) => caught as APIError);
    return [error?.status, error?.type, error?.param, error?.code];
  };
  const create = (body: object, one = client()) =>
    one.chat.completions.create({ model: model(), messages: [user('x')], ...body } as never);
  assert.deepEqual(await errorOf(create({}, client('svc_live_wrong'))), [
    401,
    'authentication_error',
    null,
    'invalid_api_key',
  ]);
  assert.deepEqual(await errorOf(create({}, client(world.keys.otherAgent))), [
    404,
    'invalid_request_error',
    null,
    'not_found',
  ]);
  assert.deepEqual(await errorOf(create({ model: 'gpt-5' })), [
    404,
    'invalid_request_error',
    'model',
    'model_not_found',
  ]);
  for (const [body, param] of [
    [{ tools: [{ type: 'function', function: { name: 'f' } }] }, 'tools'],
    [{ response_format: { type: 'json_object' } }, 'response_format'],
    [{ n: 2 }, 'n'],
    [{ messages: [] }, 'messages'],
    [{ messages: [{ role: 'wizard', content: 'x' }] }, 'messages.0.role'],
    [{ messages: [{ role: 'assistant', content: 'x' }] }, 'messages'],
    [{ messages: [user('')] }, 'content'],
    [
      { messages: [{ role: 'user', content: [{ type: { toString: 1 }, text: 'x' }] }] },
      'messages.0.content.0',
    ],
    [
      { messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: 'file-1' } }] }] },
      'messages.0.content.0',
    ],
  ] as const) {
    assert.deepEqual(await errorOf(create(body)), [400, 'invalid_request_error', param, 'invalid_request']);
  }
  for (const [input, param] of [
    [undefined, 'input'],
    [[], 'input'],
    [[{ type: 'function_call_output', call_id: 'x', output: 'y' }], 'input.0'],
    [[{ role: 'user', content: [{ type: { toString: 1 }, text: 'x' }] }], 'input.0.content.0'],
  ] as const) {
    const wrong = client().responses.create({ model: model(), input: input as never });
    assert.deepEqual(await errorOf(wrong), [400, 'invalid_request_error', param, 'invalid_request']);
  }
  const raw = await hostFetch(world.service.port)(`${baseURL()}/chat/completions`, {
    headers: { authorization: `Bearer ${world.keys.agentUse}` },
  });
  assert.deepEqual([raw.status, raw.headers.get('allow')], [405, 'POST']);
  assert.equal(((await raw.json()) as { error: { code: string } }).error.code, 'method_not_allowed');
});

test('a response is a run, another goes on from it, and it can be read again', async () => {
  const first = await client().responses.create({ model: model(), input: 'alpha', metadata: { a: 'b' } });
  assert.deepEqual([first.status, first.output_text], ['completed', 'ALPHA']);
  assert.ok(first.usage!.input_tokens > 0);
  const second = await client().responses.create({
    model: model(),
    input: [user('beta')],
    previous_response_id: first.id,
    instructions: 'Shout.',
  });
  assert.equal(second.conversation!.id, first.conversation!.id);
  assert.match(second.output_text, /BETA$/);
  const again = await client().responses.retrieve(first.id);
  assert.deepEqual(
    [again.id, again.status, again.output_text, again.usage],
    [first.id, 'completed', 'ALPHA', first.usage],
  );
  // Going on from the first again is another branch.
  const branch = await client().responses.create({
    model: model(),
    input: 'gamma',
    previous_response_id: first.id,
  });
  assert.notEqual(branch.conversation!.id, first.conversation!.id);
  const id = branch.conversation!.id.slice(5).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  assert.deepEqual(
    (await messagesOf(id)).map((message) => message.content),
    ['GAMMA', 'gamma', 'ALPHA', 'alpha'],
  );
  for (const missing of [first.id.replace(/.$/, (end) => (end === '0' ? '1' : '0')), 'resp_nothing'])
    await assert.rejects(client().responses.retrieve(missing), (error: APIError) => error.status === 404);
  await assert.rejects(
    client(world.keys.owner, world.otherAgentId).responses.retrieve(first.id),
    (error: APIError) => error.status === 404,
    'not at the host of another agent',
  );
});

const conversationOf = (response: { conversation?: { id: string } | null }) =>
  response.conversation!.id.slice(5).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');

test('responses that go on from one at the same moment are branches, of which none sees another', async () => {
  const root = await client().responses.create({ model: model(), input: 'root' });
  const goOn = (input: string, more: object = { previous_response_id: root.id }) =>
    client().responses.create({ model: model(), input, ...more });
  const referring = [{ type: 'item_reference' as const, id: root.output[0]!.id! }, user('four')];
  const branches = await Promise.all([
    goOn('one'),
    goOn('two'),
    goOn('three'),
    goOn('four', { input: referring }),
  ]);
  assert.equal(new Set(branches.map(conversationOf)).size, 4);
  const told = await Promise.all(branches.map((branch) => messagesOf(conversationOf(branch))));
  assert.deepEqual(
    told.map((messages) => messages.map(({ content }) => content)),
    ['one', 'two', 'three', 'four'].map((input) => [input.toUpperCase(), input, 'ROOT', 'root']),
  );
});

test('a response can be gone on from while the one after it goes on', async () => {
  const root = await client().responses.create({ model: model(), input: 'root' });
  const body = { model: model(), previous_response_id: root.id };
  const held = await client().responses.create({ ...body, input: 'hold: branches', background: true });
  const beside = await client().responses.create({ ...body, input: 'beside' });
  assert.deepEqual(
    (await messagesOf(conversationOf(beside))).map(({ content }) => content),
    ['BESIDE', 'beside', 'ROOT', 'root'],
  );
  assert.match((await client().responses.retrieve(held.id)).status!, /^(queued|in_progress)$/);
  world.release('branches');
});

test('a streamed response has every event of the form, and its rest can be had again', async () => {
  const stream = await client().responses.create({ model: model(), input: 'count: 4 5', stream: true });
  const events = await Array.fromAsync(stream);
  assert.deepEqual(
    events.map((event) => event.sequence_number),
    events.map((_, index) => index),
  );
  const types = events.map((event) => event.type).filter((type) => type !== 'response.output_text.delta');
  assert.deepEqual(types, [
    'response.created',
    'response.in_progress',
    'response.output_item.added',
    'response.content_part.added',
    'response.output_text.done',
    'response.content_part.done',
    'response.output_item.done',
    'response.completed',
  ]);
  const last = events.at(-1)!;
  assert.ok(last.type === 'response.completed');
  const text = events.flatMap((event) => (event.type === 'response.output_text.delta' ? [event.delta] : []));
  assert.equal(text.join(''), '1 2 3 4 ');
  assert.equal(last.response.output_text ?? text.join(''), '1 2 3 4 ');
  const rest = await client().responses.retrieve(last.response.id, { stream: true, starting_after: 4 });
  assert.deepEqual(
    (await Array.fromAsync(rest)).map((event) => [event.type, event.sequence_number]),
    events.slice(5).map((event) => [event.type, event.sequence_number]),
  );
});

test('a response in the background goes on alone, can be watched by REST, and can be cancelled', async () => {
  const begun = await client().responses.create({ model: model(), input: 'hold: openai', background: true });
  assert.match(begun.status!, /^(queued|in_progress)$/);
  const runId = begun.id.slice(5).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  assert.match((await world.call('GET', `/v1/runs/${runId}`)).body.run.status, /^(queued|running)$/);
  const cancelled = await client().responses.cancel(begun.id);
  assert.equal(cancelled.status, 'cancelled');
  assert.equal((await logOf(world.service, { runId })).at(-1)!.type, 'run.cancelled');
  world.release('openai');
});

test('a client that stops a chat completion by going away stops the run', async () => {
  const lastRun = async () =>
    (await world.call('GET', `/v1/agents/${world.agentId}/runs?limit=1`)).body.runs[0] as {
      id: string;
      status: string;
    };
  for (const stream of [true, false]) {
    // A gate that was opened once stays open.
    const gate = stream ? 'gone' : 'gone-whole';
    const { id: before } = await lastRun();
    const stopped = new AbortController();
    const asked = client().chat.completions.create(
      { model: model(), messages: [user(`hold: ${gate}`)], stream },
      { signal: stopped.signal },
    );
    const ended = asked.then(
      () => 'answered',
      () => 'aborted',
    );
    const { id } = await until('it runs', async () => {
      const last = await lastRun();
      return last.id !== before && last.status === 'running' ? last : null;
    });
    if (stream) assert.equal(await ended, 'answered');
    stopped.abort();
    if (!stream) assert.equal(await ended, 'aborted');
    await until('it is cancelled', async () => {
      return (await world.call('GET', `/v1/runs/${id}`)).body.run.status === 'cancelled';
    });
    world.release(gate);
  }
});

test('a request that is sent again with its key is done once', async () => {
  const options = { headers: { 'Idempotency-Key': `openai-${Date.now()}` } };
  const ask = () => client().chat.completions.create({ model: model(), messages: [user('once')] }, options);
  const [first, second] = [await ask(), await ask()];
  assert.equal(first.id, second.id);
  const before = await client().responses.create({ model: model(), input: 'x' });
  const body = { model: model(), input: 'y', previous_response_id: before.id };
  const again = { headers: { 'Idempotency-Key': `openai-after-${Date.now()}` } };
  const one = await client().responses.create(body, again);
  const two = await client().responses.create(body, again);
  assert.deepEqual([two.id, two.conversation], [one.id, one.conversation]);
});

test('the AI SDK generates and streams by the compatible provider', async () => {
  const provider = createOpenAICompatible({
    name: 'berth',
    baseURL: baseURL(),
    apiKey: world.keys.agentUse,
    fetch: hostFetch(world.service.port),
    includeUsage: true,
  });
  const { text, usage } = await generateText({ model: provider(model()), prompt: 'hello', maxRetries: 0 });
  assert.equal(text, 'HELLO');
  assert.ok(usage.inputTokens! > 0);
  const streamed = streamText({ model: provider(model()), prompt: 'count: 3 5', maxRetries: 0 });
  assert.equal(await streamed.text, '1 2 3 ');
  assert.ok((await streamed.usage).outputTokens! > 0);
});

test('the AI SDK holds a conversation by OpenAI’s provider, and the agent remembers it itself', async () => {
  const provider = createOpenAI({
    baseURL: baseURL(),
    apiKey: world.keys.agentUse,
    fetch: hostFetch(world.service.port),
  });
  const messages: ModelMessage[] = [user('one')];
  const first = await generateText({ model: provider.responses(model()), messages, maxRetries: 0 });
  assert.equal(first.text, 'ONE');
  messages.push(...first.response.messages, user('two'));
  const second = streamText({ model: provider.responses(model()), messages, maxRetries: 0 });
  assert.equal(await second.text, 'TWO');
  const { headers } = await second.response;
  assert.deepEqual(
    (await messagesOf(headers!['x-conversation-id']!)).map((message) => message.content),
    ['TWO', 'two', 'ONE', 'one'],
  );
  const chat = await generateText({ model: provider.chat(model()), prompt: 'hi', maxRetries: 0 });
  assert.equal(chat.text, 'HI');
});

test('a run that fails says why, in an answer and in a stream', async () => {
  const broken = (await world.call('POST', '/v1/agents', { name: 'Broken', model: 'nowhere/at-all' })).body
    .agent;
  const one = client(world.keys.owner, broken.id as string);
  const body = { model: 'Broken', messages: [user('x')] };
  const told = await one.chat.completions.create(body).catch((error: unknown) => error as APIError);
  assert.ok('status' in told && told.code === 'model_error', JSON.stringify(told));
  await assert.rejects(async () => {
    for await (const _ of await one.chat.completions.create({ ...body, stream: true }));
  }, /./);
  const failed = await one.responses.create({ model: 'Broken', input: 'x' });
  assert.deepEqual([failed.status, failed.error?.code as string], ['failed', 'model_error']);
});
