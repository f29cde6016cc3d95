import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { cleanText } from '../../src/domain/clean-text.ts';
import { harnessLinks } from '../../src/harness/link.ts';
import { fileURLToPath } from 'node:url';
import { commit, markDeployed, runTurn } from '../support/harness-fixture.ts';
import { launchEnv, makePlaces, startLauncher, startLinked } from '../support/local-harness.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';
import { agentSource, endTurn, startForeign } from '../support/foreign-agent.ts';

test('an agent of the repository is driven over the same protocol, with history as text before its first prompt', async (t) => {
  const echo = `update(params.sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } }); ${endTurn}`;
  const { connection } = await startForeign(t, agentSource(echo));
  const history = [
    { role: 'user' as const, content: 'my name is Ada', tools: [] },
    { role: 'assistant' as const, content: 'Hello Ada', tools: [] },
  ];
  const first = await runTurn(connection, 'who am I?', { history });
  assert.deepEqual(first.result, { outcome: 'completed' });
  assert.match(first.text, /User: my name is Ada[^|]*You: Hello Ada\|who am I\?$/);
  assert.equal((await runTurn(connection, 'and now?')).text, 'and now?');
  assert.equal(connection.conversationOfSession('session-1'), 'conversation-1');
});

test('a program finds the model under the usual names, with the token of the sandbox as its key', async (t) => {
  const names = ['ANTHROPIC_BASE_URL', 'ANTHROPIC_API_KEY', 'OPENAI_BASE_URL', 'OPENAI_API_KEY', 'MY_SECRET'];
  const tell = `const text2 = ${JSON.stringify(names)}.map((name) => process.env[name]).join(' ');
    update(params.sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: text2 } }); ${endTurn}`;
  const { connection } = await startForeign(t, agentSource(tell), { env: { MY_SECRET: 'of-the-agent' } });
  const { text } = await runTurn(connection, 'env?');
  assert.match(
    text,
    /^http:\/\/127\.0\.0\.1:\d+\/llm\/test sandbox-token http:\/\/127\.0\.0\.1:\d+\/llm\/v1 sandbox-token of-the-agent$/,
  );
});

test('a permission request is answered with the chosen option, and never with one that was not offered', async (t) => {
  const asks = `
    const { outcome } = await ask('session/request_permission', { sessionId: params.sessionId,
      toolCall: { toolCallId: 'call-1', title: 'Remove everything', kind: 'delete', status: 'pending' },
      options: [{ optionId: 'yes', name: 'Allow', kind: 'allow_once' }, { optionId: 'no', name: 'Reject', kind: 'reject_once' }] });
    update(params.sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: JSON.stringify(outcome) } });
    ${endTurn}`;
  const { connection } = await startForeign(t, agentSource(asks));
  const allowed = await runTurn(connection, 'do', {
    onQuestion: async () => ({ kind: 'permission', optionId: 'yes' }),
  });
  assert.equal(allowed.text, '{"outcome":"selected","optionId":"yes"}');
  const [asked] = allowed.questions;
  assert.ok(asked?.kind === 'permission');
  assert.equal(asked.title, 'Remove everything');
  assert.deepEqual(asked.options[1], {
    optionId: 'no',
    name: 'Reject',
    kind: 'reject_once',
  });
  const made = await runTurn(connection, 'do', {
    onQuestion: async () => ({ kind: 'permission', optionId: 'something else' }),
  });
  assert.equal(made.text, '{"outcome":"cancelled"}');
});

test('what was not offered to the agent is refused: files and terminals of the host do not exist for it', async (t) => {
  const reads = `
    const answer = await ask('fs/read_text_file', { sessionId: params.sessionId, path: '/etc/passwd' });
    update(params.sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: JSON.stringify(answer) } });
    ${endTurn}`;
  const { connection } = await startForeign(t, agentSource(reads));
  const { text } = await runTurn(connection, 'read');
  assert.equal(text, '{"code":-32601,"message":"There is no method \\"fs/read_text_file\\" here."}');
});

test('wrong shapes, unknown updates and lines that are no JSON are survived; NUL and lone surrogates are replaced', async (t) => {
  const mess = `
    const s = params.sessionId;
    process.stdout.write('Starting up!\\n[1,2\\n\\n"text"\\n');
    for (const bad of [null, 3, [], {}, { sessionUpdate: 5 }, { sessionUpdate: 'agent_message_chunk' },
      { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 7 } }, { sessionUpdate: 'tool_call' },
      { sessionUpdate: 'plan', entries: 'none' }, { sessionUpdate: '__proto__' }]) update(s, bad);
    update('no such session', { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'leak' } });
    say({ id: 12345, result: {} });
    update(s, { sessionUpdate: 'tool_call_update', toolCallId: 'c', status: 'no such status', rawInput: { a: 'x\\u0000y' } });
    process.stdout.write('{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"' + s + '","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\\\\u0000b\\\\ud800c"}}}}\\n');
    ${endTurn}`;
  const { connection } = await startForeign(t, agentSource(mess));
  const turn = await runTurn(connection, 'go');
  assert.deepEqual(turn.result, { outcome: 'completed' });
  // A pair may be split between two pieces of an answer, so that what joins them cleans them (TurnLog).
  assert.equal(turn.text, 'a\0b\ud800c');
  assert.equal(cleanText(turn.text), 'a\uFFFDb\uFFFDc');
  assert.deepEqual(
    turn.tools.map((tool) => [tool.phase, tool.status, tool.input]),
    [
      ['started', 'pending', { a: 'x\uFFFDy' }],
      ['finished', 'failed', { a: 'x\uFFFDy' }],
    ],
  );
});

test('a line without an end fails the turn and ends the sandbox', async (t) => {
  const flood = `setInterval(() => process.stdout.write('x'.repeat(1 << 20)), 0);`;
  const { connection, exited } = await startForeign(t, agentSource(flood));
  const { result } = await runTurn(connection, 'go');
  assert.equal(result.outcome === 'failed' && result.code, 'harness_error');
  await exited;
});

test('when the process ends in the middle of turns all of them fail with its exit code', async (t) => {
  const dies = `if (text === 'die') process.exit(7);`;
  const { connection } = await startForeign(t, agentSource(dies));
  const waiting = runTurn(connection, 'wait', { conversationId: 'other' });
  const dying = await runTurn(connection, 'die');
  const expected = {
    outcome: 'failed',
    code: 'harness_exit',
    message: 'The harness ended with exit code 7.',
  };
  assert.deepEqual(dying.result, expected);
  assert.deepEqual((await waiting).result, expected);
  assert.deepEqual((await runTurn(connection, 'more')).result, expected);
});

test('an error of the agent fails the turn, and it cannot pose as an error of the service', async (t) => {
  const fails = `say({ id, error: { code: -32000, message: 'no key', data: { code: 'sandbox_oom' } } });`;
  const { connection } = await startForeign(t, agentSource(fails));
  const { result } = await runTurn(connection, 'go');
  assert.equal(result.outcome === 'failed' && result.code, 'harness_error');
  assert.match(result.outcome === 'failed' ? result.message : '', /^no key .*set the secret/);
});

test('a command that does not exist is named in the error', async (t) => {
  await assert.rejects(
    startForeign(t, '', { command: ['no-such-agent', '--acp'] }),
    /exit code 127.*agent\.json: the command "no-such-agent" was not found/,
  );
});

test('what a command says before the service has answered its launcher, and just before its end, is in the log', async (t) => {
  const places = await makePlaces();
  t.after(places.remove);
  await markDeployed(places);
  const script = 'echo early >&2; touch said; read line; echo late >&2; exit 3';
  const command = JSON.stringify(['sh', '-c', script]);
  const sandbox = await startLauncher(
    places,
    launchEnv('anthropic', commit, { BERTH_HARNESS_COMMAND: command }),
  );
  t.after(() => sandbox.kill());
  await until('it has said something', () => existsSync(join(places.workspace, 'said')));
  const openLink = harnessLinks({ log: silentLog, workspace: places.workspace });
  const link = await openLink({ socketPath: places.controlSocket, sandboxId: 'local' });
  t.after(() => link.leave());
  await assert.rejects(link.connect(sandbox, { initializeTimeoutMs: 20_000 }), /exit code 3/);
  assert.deepEqual(
    link.log.after(0).map(({ text }) => text),
    ['early', 'late'],
  );
  assert.equal(link.log.isClosed, false, 'why it has ended may still be said');
});

test('an agent that never answers is given up after the time limit', async (t) => {
  const places = await makePlaces();
  t.after(places.remove);
  await markDeployed(places);
  const env = launchEnv('anthropic', commit, { BERTH_HARNESS_COMMAND: '["sleep","600"]' });
  await assert.rejects(
    startLinked(t, places, env, { initializeTimeoutMs: 300 }),
    /did not answer within 0\.3 s/,
  );
});

test('an agent on the official library is driven, and its cancel arrives', async (t) => {
  const library = fileURLToPath(import.meta.resolve('@agentclientprotocol/sdk'));
  const source = `
    import { agent, ndJsonStream } from ${JSON.stringify(library)};
    import { Readable, Writable } from 'node:stream';
    const cancels = new Map();
    agent({ name: 'library' })
      .onRequest('initialize', () => ({ protocolVersion: 1, agentCapabilities: {} }))
      .onRequest('session/new', () => ({ sessionId: 'one' }))
      .onRequest('session/prompt', async ({ params, client }) => {
        await client.notify('session/update', { sessionId: 'one', update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'hello' } } });
        if (params.prompt[0].text !== 'wait') return { stopReason: 'end_turn' };
        return new Promise((resolve) => cancels.set('one', () => resolve({ stopReason: 'cancelled' })));
      })
      .onNotification('session/cancel', () => cancels.get('one')?.())
      .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));`;
  const { connection } = await startForeign(t, source);
  const turn = await runTurn(connection, 'hi');
  assert.equal(turn.text, 'hello');
  assert.deepEqual(turn.result, { outcome: 'completed' });
  const abort = new AbortController();
  const cancelled = await runTurn(connection, 'wait', {
    signal: abort.signal,
    onUpdate: () => abort.abort(),
  });
  assert.deepEqual(cancelled.result, { outcome: 'cancelled' });
});
