import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MessageExtras } from '../../src/domain/parts.ts';
import { startForeign, agentSource } from '../support/foreign-agent.ts';
import { runTurn } from '../support/harness-fixture.ts';

/** The message is a program; `end` gives the result of the prompt. */
const program = agentSource(`
  if (method !== 'session/prompt') return;
  const tell = (content, meta) => update(params.sessionId, { sessionUpdate: 'agent_message_chunk', content,
    ...(meta && { _meta: { 'berth.dev': { artifact: meta } } }) });
  const drained = () => new Promise((r) => process.stdout.writableNeedDrain ? process.stdout.once('drain', r) : setImmediate(r));
  let ending = { stopReason: 'end_turn' };
  await (0, eval)('(async ({ tell, ask, params, drained, end }) => {' + params.prompt[0].text + '})')(
    { tell, ask, params, drained, end: (given) => (ending = given) });
  say({ id, result: ending });`);

test('content that is no text is an artifact; text is one when it is said to be, and what is malformed is nothing', async (t) => {
  const { connection } = await startForeign(t, program);
  const { updates, text } = await runTurn(
    connection,
    `tell({ type: 'text', text: 'before ' });
     tell({ type: 'image', data: 'iVBORw0K', mimeType: 'image/png', uri: 'file:///tmp/a%2Fb/dot.png?x' });
     tell({ type: 'audio', data: 'AAAA', mimeType: 'odd type' });
     tell({ type: 'resource', resource: { uri: 'x/..%2F..%2Fetc', mimeType: 'text/plain', text: 'hé' } });
     tell({ type: 'resource_link', uri: 'https://example.com/x', name: 'x', mimeType: 'text/html' }, { id: 'l', name: 'A link', description: 'why' });
     tell({ type: 'text', text: 'one' }, { id: 't', lastChunk: false });
     tell({ type: 'text', text: 'two', _meta: { 'berth.dev': { artifact: { id: 't', append: true } } } });
     tell({ type: 'text', text: '' }, { id: 'd', data: { a: [1] }, mediaType: 'application/x.a+json' });
     for (const bad of [{ type: 'image', data: 'no base64', mimeType: 'image/png' }, { type: 'image', data: 'AAA', mimeType: 'image/png' },
       { type: 'video' }, { type: 'resource' }, { type: 'resource', resource: { blob: 7 } }, { type: 'resource_link' }]) tell(bad);
     tell({ type: 'text', text: '' }, { id: 'nothing' });
     tell({ type: 'text', text: 'a\\u0000\\ud800', _meta: { 'berth.dev': { artifact: { id: 'odd' } } } });
     tell({ type: 'text', text: 'after' });`,
  );
  assert.equal(text, 'before after');
  const artifacts = updates.filter((update) => update.kind === 'artifact');
  const [image, audio, embedded, ...named] = artifacts.map(({ kind: _kind, artifactId, ...rest }) =>
    /^[0-9a-f-]{36}$/.test(artifactId) ? rest : { artifactId, ...rest },
  );
  const whole = { description: null, append: false, lastChunk: true };
  const png = { kind: 'file', name: 'dot.png', mediaType: 'image/png', bytes: 'iVBORw0K' };
  assert.deepEqual(image, { ...whole, name: 'dot.png', parts: [png] });
  const sound = { kind: 'file', name: null, mediaType: 'application/octet-stream', bytes: 'AAAA' };
  assert.deepEqual(audio, { ...whole, name: null, parts: [sound] });
  const name = '.._.._etc';
  assert.deepEqual(embedded, {
    ...whole,
    name,
    parts: [{ kind: 'file', name, mediaType: 'text/plain', bytes: 'aMOp' }],
  });
  const link = { kind: 'link', name: 'x', mediaType: 'text/html', url: 'https://example.com/x' };
  assert.deepEqual(named, [
    { ...whole, artifactId: 'l', name: 'A link', description: 'why', parts: [link] },
    { ...whole, artifactId: 't', name: null, lastChunk: false, parts: [{ kind: 'text', text: 'one' }] },
    { ...whole, artifactId: 't', name: null, append: true, parts: [{ kind: 'text', text: 'two' }] },
    {
      ...whole,
      artifactId: 'd',
      name: null,
      parts: [{ kind: 'data', data: { a: [1] }, mediaType: 'application/x.a+json' }],
    },
    { ...whole, artifactId: 'odd', name: null, parts: [{ kind: 'text', text: 'a\ufffd\ufffd' }] },
  ]);
});

test('a turn that puts too much into artifacts, or makes too many, fails with a reason', async (t) => {
  const { connection } = await startForeign(t, program);
  const much = await runTurn(
    connection,
    `for (let i = 0; i < 20; i++) { tell({ type: 'image', data: 'A'.repeat(1_000_000), mimeType: 'image/png' }); await drained(); }`,
  );
  assert.deepEqual(much.result, {
    outcome: 'failed',
    code: 'harness_error',
    message: 'The harness put more than 8388608 characters into artifacts in one turn. The turn was ended.',
  });
  assert.equal(much.updates.length, 8);
  const many = await runTurn(
    connection,
    `for (let i = 0; i < 101; i++) tell({ type: 'text', text: 'x' }, { id: 'a' + i });`,
  );
  assert.ok(many.result.outcome === 'failed', JSON.stringify(many.result));
  assert.match(many.result.message, /^The harness made more than 100 artifacts in one turn\./);
  assert.equal(many.updates.length, 100);
});

test('an answer may be called a plain message, and a refusal is an end of its own', async (t) => {
  const { connection } = await startForeign(t, program);
  const end = async (result: object) => (await runTurn(connection, `end(${JSON.stringify(result)})`)).result;
  const reply = (value: unknown) => ({ 'berth.dev': { reply: value } });
  assert.deepEqual(await end({ stopReason: 'end_turn', _meta: reply('message') }), {
    outcome: 'completed',
    reply: 'message',
  });
  for (const meta of [undefined, null, 'x', { 'berth.dev': null }, reply('task'), reply(['message'])]) {
    assert.deepEqual(await end({ stopReason: 'end_turn', _meta: meta }), { outcome: 'completed' });
  }
  assert.deepEqual(await end({ stopReason: 'refusal' }), { outcome: 'refused' });
});

test('a form is put to the caller with what it says; a URL, and a form that is too large, are cancelled at once', async (t) => {
  const { connection } = await startForeign(t, program);
  const asked = (params: string) =>
    runTurn(
      connection,
      `const answer = await ask('elicitation/create', ${params}); tell({ type: 'text', text: JSON.stringify(answer) });`,
      {
        onQuestion: async (question) => {
          assert.ok(question.kind === 'input');
          if (question.purpose === 'authorization')
            return { kind: 'input', action: 'decline', content: null };
          const message = { source: 'a2a', clientMessageId: 'm-1', metadata: { a: 1 } };
          return { kind: 'input', action: 'accept', content: { name: 'Ada', ages: ['1'] }, message };
        },
      },
    );
  const session = 'sessionId: params.sessionId';
  const form = `mode: 'form', message: 'Who?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } }`;
  const accepted = await asked(`{ ${session}, ${form} }`);
  const [question] = accepted.questions;
  assert.ok(question?.kind === 'input');
  assert.equal(question.message, 'Who?');
  assert.deepEqual(question.form, { type: 'object', properties: { name: { type: 'string' } } });
  assert.deepEqual(JSON.parse(accepted.text), {
    action: 'accept',
    content: { name: 'Ada', ages: ['1'] },
    _meta: { 'berth.dev': { message: { source: 'a2a', clientMessageId: 'm-1', metadata: { a: 1 } } } },
  });
  const meta = `_meta: { 'berth.dev': { purpose: 'authorization' } }`;
  assert.equal((await asked(`{ ${session}, ${form}, ${meta} }`)).text, '{"action":"decline"}');
  for (const refused of [
    `{ ${session}, mode: 'url', message: 'Open', url: 'https://example.com', elicitationId: 'e' }`,
    `{ ${session}, mode: 'form', message: 'Big', requestedSchema: { type: 'object', title: 'x'.repeat(16_384) } }`,
    `{ ${session}, mode: 'form', message: 'None' }`,
    `{ sessionId: 'another', ${form} }`,
  ]) {
    const { text, questions } = await asked(refused);
    assert.equal(text, '{"action":"cancel"}', refused);
    assert.equal(questions.length, 0);
  }
});

test('parts of a message reach an agent in the forms that it takes, others in words, with the ids and metadata of the sender', async (t) => {
  const extras: MessageExtras = {
    parts: [
      { kind: 'data', data: { a: 1 }, mediaType: 'application/json' },
      { kind: 'file', name: 'a b.txt', mediaType: 'text/plain', bytes: 'aMOp' },
      { kind: 'file', name: null, mediaType: 'text/plain', bytes: '/w==' },
      { kind: 'file', name: 'dot.png', mediaType: 'image/png', bytes: 'iVBORw0K' },
      { kind: 'link', name: null, mediaType: 'text/html', url: 'https://example.com/' },
    ],
    clientMessageId: 'm-1',
    metadata: { ticket: 7 },
  };
  const echo = `tell({ type: 'text', text: JSON.stringify([params.prompt.slice(1), params._meta]) });`;
  const promptOf = async (capabilities: string) => {
    const source = program.replace(
      'agentCapabilities: {}',
      `agentCapabilities: { promptCapabilities: ${capabilities} }`,
    );
    const { connection } = await startForeign(t, source);
    const { text } = await runTurn(connection, echo, { extras, source: 'a2a' });
    const [blocks, meta] = JSON.parse(text);
    assert.deepEqual(meta, {
      'berth.dev': { message: { source: 'a2a', clientMessageId: 'm-1', metadata: { ticket: 7 } } },
    });
    return blocks;
  };
  const link = {
    type: 'resource_link',
    uri: 'https://example.com/',
    name: 'https://example.com/',
    mimeType: 'text/html',
  };
  assert.deepEqual(await promptOf('{}'), [
    { type: 'text', text: '{"a":1}' },
    { type: 'text', text: 'File a b.txt (text/plain):\nhé' },
    { type: 'text', text: '[file without a name, text/plain, 1 bytes]' },
    { type: 'text', text: '[file dot.png, image/png, 6 bytes]' },
    link,
  ]);
  const resource = (uri: string, rest: object) => ({ type: 'resource', resource: { uri, ...rest } });
  assert.deepEqual(await promptOf('{ image: true, embeddedContext: true }'), [
    resource('berth:part/1/data.json', { mimeType: 'application/json', text: '{"a":1}' }),
    resource('berth:part/2/a%20b.txt', { mimeType: 'text/plain', text: 'hé' }),
    resource('berth:part/3/file', { mimeType: 'text/plain', blob: '/w==' }),
    { type: 'image', data: 'iVBORw0K', mimeType: 'image/png', uri: 'berth:part/4/dot.png' },
    link,
  ]);
});
