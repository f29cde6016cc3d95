import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { resumeItems } from '../../../harness/src/history.ts';
import { startGateway } from '../support/gateway.ts';
import type { GatewayAnswer } from '../support/gateway.ts';
import { until } from '../support/until.ts';

const path = '/llm/demo/v1/chat/completions';
const bash = {
  type: 'function',
  function: { name: 'bash', parameters: { type: 'object', properties: { command: { type: 'string' } } } },
};

type Message = Record<string, unknown>;

async function ask(
  messages: Message[],
  extra: object = {},
): Promise<{ answer: GatewayAnswer; cost: bigint }> {
  const gateway = await startGateway({ env: {}, model: 'demo/guide' });
  const answer = await gateway.send(path, { body: { model: 'guide', messages, tools: [bash], ...extra } });
  await gateway.close();
  equal(gateway.usages.length, 1);
  return {
    answer,
    cost: (gateway.usages[0]?.entries ?? []).reduce((sum, entry) => sum + entry.costMicros, 0n),
  };
}

async function messageOf(messages: Message[], extra: object = {}) {
  const { answer } = await ask(messages, extra);
  return JSON.parse(answer.text).choices[0];
}

const user = (content: unknown): Message => ({ role: 'user', content });
const called = (id: string, command: string): Message => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id, type: 'function', function: { name: 'bash', arguments: JSON.stringify({ command }) } }],
});
const result = (id: string, content: string): Message => ({ role: 'tool', tool_call_id: id, content });

test('it says plainly that it is a demonstration, how to set a key, and what it saw', async () => {
  const choice = await messageOf([
    { role: 'system', content: 'You are the harbour master.' },
    user('Hello there'),
  ]);
  const text: string = choice.message.content;
  equal(choice.finish_reason, 'stop');
  for (const part of [
    'demonstration and not a language model',
    'ANTHROPIC_API_KEY',
    'docs/models.md',
    'messages in this conversation: 1',
    '"Hello there"',
    '"You are the harbour master."',
  ]) {
    ok(text.includes(part), part);
  }
});

test('the same request gets the same bytes', async () => {
  const messages = [user('Hello')];
  const first = await ask(messages, { stream: true });
  const second = await ask(messages, { stream: true });
  ok(first.answer.body.equals(second.answer.body));
  equal(first.cost, 0n);
});

test('a run line becomes a call of the harness’s shell', async () => {
  const choice = await messageOf([user('Please do this:\n  run: ls -la | head -3  \nthanks')]);
  equal(choice.finish_reason, 'tool_calls');
  const [call] = choice.message.tool_calls;
  equal(call.function.name, 'bash');
  deepEqual(JSON.parse(call.function.arguments), { command: 'ls -la | head -3' });
});

test('shells of other harnesses are found too, also those that take an argument vector', async () => {
  const tools = [
    { type: 'function', function: { name: 'read', parameters: {} } },
    {
      type: 'function',
      function: {
        name: 'shell',
        parameters: { properties: { command: { type: 'array', items: { type: 'string' } } } },
      },
    },
  ];
  const choice = await messageOf([user('run: id')], { tools });
  deepEqual(JSON.parse(choice.message.tool_calls[0].function.arguments), { command: ['sh', '-c', 'id'] });
});

test('without a shell tool it says so', async () => {
  const choice = await messageOf([user('run: id')], { tools: [] });
  ok(choice.message.content.includes('no shell tool'));
});

test('the result is shown as it came, exit code and all', async () => {
  const output = 'no such file: ```x```\n[exit code: 2]';
  const choice = await messageOf([user('run: cat x'), called('c1', 'cat x'), result('c1', output)]);
  ok(choice.message.content.includes(output));
  ok(choice.message.content.startsWith('$ cat x\n````\n'));
});

test('several commands run one after the other, also when one fails, and are shown together', async () => {
  const question = user('run: one\nrun: two\n\nrun: three');
  const messages = [user('earlier'), { role: 'assistant', content: 'x' }, question];
  const outputs = ['1\n[exit code: 0]', '[exit code: 7]', '3\n[exit code: 0]'];
  const ids = new Set<string>();
  for (const [index, command] of ['one', 'two', 'three'].entries()) {
    const choice = await messageOf(messages);
    const [call] = choice.message.tool_calls;
    deepEqual(JSON.parse(call.function.arguments), { command });
    ids.add(call.id);
    messages.push(called(call.id, command), result(call.id, outputs[index] ?? ''));
  }
  equal(ids.size, 3);
  const text: string = (await messageOf(messages)).message.content;
  ok(
    text.indexOf('$ one\n') < text.indexOf('$ two\n') && text.indexOf('$ two\n') < text.indexOf('$ three\n'),
  );
  for (const output of outputs) ok(text.includes(output));
});

test('a huge output loses its middle, says so, and keeps its exit code', async () => {
  const output = `${'😀'.repeat(50_000)}\n[exit code: 3]`;
  const choice = await messageOf([user('run: big'), called('c1', 'big'), result('c1', output)]);
  const text: string = choice.message.content;
  ok(text.length < 20_000);
  ok(text.includes('characters left out'));
  ok(text.includes('[exit code: 3]'));
  ok(text.isWellFormed());
});

function textOfStream(answer: GatewayAnswer): string {
  return answer.text
    .split('\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => JSON.parse(line.slice(6)).choices[0]?.delta.content ?? '')
    .join('');
}

test('say streams exactly the text that follows it', async () => {
  for (const text of ['one two  three', ' spaced\n\tlines\n', 'Grüße aus 東京 😀', '', 'x']) {
    const { answer } = await ask([user(`say:${text === '' ? '' : ` ${text}`}`)], { stream: true });
    equal(textOfStream(answer), text);
    ok(answer.text.endsWith('data: [DONE]\n\n'));
  }
});

test('content in parts is read like a text', async () => {
  const choice = await messageOf([
    user([
      { type: 'text', text: 'say: hi' },
      { type: 'image_url', image_url: {} },
    ]),
  ]);
  equal(choice.message.content, 'hi');
});

test('slow streams token by token and stops when the client leaves', async () => {
  const gateway = await startGateway({ env: {}, model: 'demo/guide' });
  const controller = new AbortController();
  let text = '';
  const sent = gateway.send(path, {
    body: { model: 'guide', stream: true, messages: [user('slow: 1000 10')] },
    signal: controller.signal,
    onData: (chunk) => {
      text += chunk.toString();
      if (text.includes('"3 "')) controller.abort();
    },
  });
  await sent.catch(() => {});
  await until('usage of the aborted stream', () => gateway.usages.length === 1);
  await gateway.close();
  const output = gateway.usages[0]?.entries.find(({ meter }) => meter === 'model.output_tokens');
  ok(output && output.quantity < 100);
  ok(gateway.reservations[0]?.released);
});

test('a stream reports usage and is free', async () => {
  const { answer, cost } = await ask([user('slow: 3 1')], { stream: true });
  equal(textOfStream(answer), '1 2 3 ');
  ok(answer.text.includes('"usage":{"prompt_tokens":'));
  equal(cost, 0n);
});

test('what is no chat request is refused in the wire’s shape', async () => {
  const gateway = await startGateway({ env: {}, model: 'demo/guide' });
  const noMessages = await gateway.send(path, { body: { model: 'guide' } });
  const broken = await gateway.send(path, { body: '{"model":"guide","messages":["\\x"]}' });
  const otherWire = await gateway.send('/llm/demo/v1/messages', { body: { model: 'guide', messages: [] } });
  await gateway.close();
  equal(noMessages.status, 400);
  equal(JSON.parse(noMessages.text).error.type, 'invalid_request_error');
  equal(broken.status, 400);
  equal(otherWire.status, 404);
});

test('a turn that was interrupted goes on with the next command and repeats none', async () => {
  const tool = {
    id: 'x',
    title: 'bash',
    input: { command: 'first' },
    output: '',
    status: 'unknown' as const,
  };
  const items = resumeItems([{ role: 'assistant', content: '', tools: [tool] }], () => 'c1');
  const notice = items.at(-1)!;
  equal(notice.role, 'user');
  const messages = [
    user('run: first\nrun: second'),
    called('c1', 'first'),
    result('c1', 'It is unknown whether it happened.'),
    user(notice.role === 'user' ? notice.text : ''),
  ];
  const choice = await messageOf(messages);
  equal(JSON.parse(choice.message.tool_calls[0].function.arguments).command, 'second');
  const done = await messageOf([...messages, called('c2', 'second'), result('c2', 'done')]);
  ok(done.message.content.includes('$ first\n```\nIt is unknown'), done.message.content);
  ok(done.message.content.includes('$ second\n```\ndone'), done.message.content);
});
