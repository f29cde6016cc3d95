import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Readable, Writable } from 'node:stream';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { client, ndJsonStream } from '@agentclientprotocol/sdk';
import type { ClientContext, SessionNotification } from '@agentclientprotocol/sdk';
import { cpuClock } from '../support/cpu-time.ts';
import { commit, markDeployed, runTurn, startHarness } from '../support/harness-fixture.ts';
import {
  launchEnv,
  makePlaces,
  relayGateway,
  startLauncher,
  startWithStreams,
} from '../support/local-harness.ts';
import type { Places } from '../support/local-harness.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import type { Script } from '../support/scripted-model.ts';

async function startBare(
  t: TestContext,
  script: Script,
): Promise<{ input: Writable; output: Readable; places: Places }> {
  const places = await makePlaces();
  t.after(places.remove);
  await markDeployed(places);
  const model = await startScriptedModel(script);
  t.after(model.close);
  const gateway = await relayGateway(places.gatewaySocket, model.url);
  t.after(gateway.close);
  return { ...(await startWithStreams(t, places, launchEnv('openai-chat', commit))), places };
}

async function withLibrary(
  { input, output }: { input: Writable; output: Readable },
  work: (agent: ClientContext, updates: SessionNotification[]) => Promise<void>,
): Promise<void> {
  const updates: SessionNotification[] = [];
  const stream = ndJsonStream(
    Writable.toWeb(input) as WritableStream<Uint8Array>,
    Readable.toWeb(output) as unknown as ReadableStream<Uint8Array>,
  );
  await client({ name: 'test' })
    .onNotification('session/update', ({ params }) => void updates.push(params))
    .connectWith(stream, (agent) => work(agent, updates));
}

test("the official library's client drives the built-in harness: prompt, tool call, cancel, errors", async (t) => {
  const { places, ...streams } = await startBare(t, (request, index) => {
    if (index === 0) return { toolCalls: [{ name: 'bash', input: { command: 'echo from the tool' } }] };
    if (index === 1) return { text: ['all ', 'done'] };
    return { text: Array(1000).fill('long '), gapMs: 20 };
  });
  await withLibrary(streams, async (agent, updates) => {
    const initialized = await agent.request('initialize', { protocolVersion: 99, clientCapabilities: {} });
    assert.equal(initialized.protocolVersion, 1);
    assert.equal(initialized.agentCapabilities?.loadSession, false);
    await assert.rejects(agent.request('session/new', { cwd: 'relative', mcpServers: [] }), { code: -32602 });
    const { sessionId } = await agent.request('session/new', { cwd: places.workspace, mcpServers: [] });
    const answer = await agent.request('session/prompt', {
      sessionId,
      prompt: [{ type: 'text', text: 'go' }],
    });
    assert.equal(answer.stopReason, 'end_turn');
    const kinds = updates.map(({ update }) => update.sessionUpdate);
    assert.deepEqual(kinds.slice(0, 2), ['tool_call', 'tool_call_update']);
    assert.ok(updates.every((update) => update.sessionId === sessionId));

    const prompt = agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'long' }] });
    await assert.rejects(
      agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'two' }] }),
      { code: -32600 },
    );
    await agent.notify('session/cancel', { sessionId });
    assert.equal((await prompt).stopReason, 'cancelled');
    const seen = updates.length;
    await agent.request('session/close', { sessionId });
    assert.equal(updates.length, seen);
    await assert.rejects(agent.request('session/prompt', { sessionId, prompt: [] }), { code: -32002 });
  });
});

test('junk, unknown methods and odd ids are answered as JSON-RPC wants, and the connection stays usable', async (t) => {
  const streams = await startBare(t, () => ({}));
  const send = (line: string) => streams.input.write(`${line}\n`);
  let output = '';
  streams.output.on('data', (chunk: Buffer) => (output += chunk.toString()));
  send('not json');
  send('[]');
  send('{"jsonrpc":"2.0","id":"text id","method":"no/such"}');
  send('{"jsonrpc":"2.0","id":null,"method":"initialize"}');
  send('{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"none"}}');
  send('{"jsonrpc":"2.0","method":"no/such"}');
  send('{"jsonrpc":"2.0","id":1,"method":"constructor"}');
  send('{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":1}}');
  while (!output.includes('"id":2')) await once(streams.output, 'data');
  const answers = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual(
    answers.map((answer) => [answer.id, answer.error?.code ?? 'ok']),
    [
      [null, -32700],
      [null, -32600],
      ['text id', -32601],
      [null, -32600],
      [1, -32601],
      [2, 'ok'],
    ],
  );
});

test('a missing variable ends the launcher with its name and exit code 78', async (t) => {
  const places = await makePlaces();
  t.after(places.remove);
  const sandbox = await startLauncher(places, launchEnv('anthropic', 'no commit'));
  let text = '';
  sandbox.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()));
  assert.equal((await sandbox.exited).code, 78);
  assert.equal(text, 'berth: BERTH_COMMIT must be a full commit id.\n');
});

test('a turn after a hundred others takes the harness no more time than one of a new conversation, within half again', async (t) => {
  const { connection, sandbox } = await startHarness(t, {
    script: () => ({ text: ['a ', 'short ', 'answer'] }),
  });
  const clockMs = cpuClock(Number(sandbox.id.replace('local-', '')));
  const turnMs = async (conversationId: string) => {
    const before = clockMs();
    await runTurn(connection, 'a question', { conversationId });
    return clockMs() - before;
  };
  for (let turn = 0; turn < 100; turn++) await turnMs('old');
  const [old, young]: [number[], number[]] = [[], []];
  // In turns, so that whatever else this machine does falls on both.
  for (let turn = 0; turn < 40; turn++) {
    await turnMs(`young-${turn}`);
    young.push(await turnMs(`young-${turn}`));
    old.push(await turnMs('old'));
  }
  const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
  assert.ok(median(young) > 0, 'this kernel does not count the time of threads');
  assert.ok(
    median(old) < median(young) * 1.5,
    `old ${median(old).toFixed(2)} ms, young ${median(young).toFixed(2)} ms`,
  );
});
