import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { sandboxToken, startGateway } from '../support/gateway.ts';
import { commit, markDeployed, runTurn, startHarness } from '../support/harness-fixture.ts';
import { launchEnv, makePlaces, startLinked } from '../support/local-harness.ts';
import type { TestedWire } from '../support/harness-fixture.ts';
import type { ScriptedRequest } from '../support/scripted-model.ts';
import { inTime } from '../support/until.ts';

const wires: TestedWire[] = ['anthropic', 'openai-chat'];

function bodyText(request: ScriptedRequest | undefined): string {
  return JSON.stringify(request?.body?.messages ?? null);
}

for (const wire of wires) {
  test(`over ${wire}, a turn with tool calls runs them in the workspace and gives their results to the model`, async (t) => {
    const { connection, model, places } = await startHarness(t, {
      wire,
      files: { 'AGENTS.md': 'Always answer in verse.', 'input.txt': 'seven' },
      script: (_request, index) =>
        index === 0
          ? {
              text: ['I ', 'look.'],
              toolCalls: [
                { id: 'one', name: 'bash', input: { command: 'cat input.txt; echo problem >&2; exit 3' } },
                { id: 'two', name: 'write', input: { path: 'made/output.txt', content: 'eight' } },
              ],
            }
          : { text: ['It was ', 'seven: 🦀'] },
    });
    const turn = await runTurn(connection, 'What is in the file?');
    assert.deepEqual(turn.result, { outcome: 'completed' });
    assert.equal(turn.text, 'I look.It was seven: 🦀');
    const finished = turn.tools.filter((tool) => tool.phase === 'finished');
    assert.deepEqual(finished.map((tool) => [tool.toolCallId, tool.toolKind, tool.status]).sort(), [
      ['one', 'execute', 'failed'],
      ['two', 'edit', 'completed'],
    ]);
    assert.equal(finished.find((tool) => tool.toolCallId === 'one')?.output, 'sevenproblem\n[exit code: 3]');
    assert.equal(await readFile(join(places.workspace, 'made/output.txt'), 'utf8'), 'eight');

    const [first, second] = model.requests;
    assert.equal(model.requests.length, 2);
    assert.match(JSON.stringify(first?.body), /Always answer in verse/);
    assert.match(bodyText(second), /sevenproblem\\\\n\[exit code: 3\]|sevenproblem\\n\[exit code: 3\]/);
    const session = String(first?.headers['x-berth-session']);
    assert.equal(connection.conversationOfSession(session), 'conversation-1');
    assert.equal(second?.headers['x-berth-session'], session);
    const token = wire === 'anthropic' ? first?.headers['x-api-key'] : first?.headers['authorization'];
    assert.equal(token, wire === 'anthropic' ? 'sandbox-token' : 'Bearer sandbox-token');
  });

  test(`over ${wire}, the model hears the earlier turns of its session`, async (t) => {
    const { connection, model } = await startHarness(t, {
      wire,
      script: (_request, index) => ({ text: [`answer ${index}`] }),
    });
    await runTurn(connection, 'first question');
    await runTurn(connection, 'second question');
    const told = bodyText(model.requests[1]);
    assert.ok(told.indexOf('first question') < told.indexOf('answer 0'));
    assert.ok(told.indexOf('answer 0') < told.indexOf('second question'));
  });

  test(`over ${wire}, 429, 500 and a lost connection are tried again before anything was shown`, async (t) => {
    const { connection, model } = await startHarness(t, {
      wire,
      script: (_request, index) => {
        if (index === 0)
          return { error: { status: 429, message: 'slow down' }, headers: { 'retry-after-ms': '5' } };
        if (index === 1) return { error: { status: 500, message: 'oops' }, headers: { 'retry-after': '0' } };
        if (index === 2) return { text: ['never shown'], cutAfterEvents: 0 };
        return { text: ['at last'] };
      },
    });
    const turn = await runTurn(connection, 'hello');
    assert.deepEqual(turn.result, { outcome: 'completed' });
    assert.equal(turn.text, 'at last');
    assert.equal(model.requests.length, 4);
  });

  test(`over ${wire}, an answer that breaks off after its first text fails the turn and is not asked for again`, async (t) => {
    const { connection, model } = await startHarness(t, {
      wire,
      script: () => ({ text: ['half ', 'an ', 'answer'], cutAfterEvents: 4, gapMs: 20 }),
    });
    const turn = await runTurn(connection, 'hello');
    assert.equal(turn.result.outcome, 'failed');
    assert.equal(turn.result.outcome === 'failed' && turn.result.code, 'model_error');
    assert.match(turn.text, /^half/);
    assert.equal(model.requests.length, 1);
  });

  test(`over ${wire}, a refusal of the provider fails the turn with its message and the next turn works`, async (t) => {
    const { connection } = await startHarness(t, {
      wire,
      script: (_request, index) =>
        index === 0 ? { error: { status: 404, message: 'no such model: model-1' } } : { text: ['fine'] },
    });
    const failed = await runTurn(connection, 'hello');
    assert.deepEqual(failed.result, {
      outcome: 'failed',
      code: 'model_error',
      message: 'The model provider answered 404: no such model: model-1',
    });
    const next = await runTurn(connection, 'again');
    assert.equal(next.text, 'fine');
  });

  test(`over ${wire}, status 402 is a used-up budget`, async (t) => {
    const { connection } = await startHarness(t, {
      wire,
      script: () => ({ error: { status: 402, message: 'The budget of 5 dollars is used up.' } }),
    });
    const { result } = await runTurn(connection, 'hello');
    assert.deepEqual(result, {
      outcome: 'failed',
      code: 'budget_exceeded',
      message: 'The budget of 5 dollars is used up.',
    });
  });

  test(`over ${wire}, history and an interrupted attempt are told to the model, unknown outcomes as unknown`, async (t) => {
    const { connection, model } = await startHarness(t, { wire, script: () => ({ text: ['done'] }) });
    await runTurn(connection, 'go on', {
      history: [
        { role: 'user', content: 'make a file', tools: [] },
        {
          role: 'assistant',
          content: 'Made it.',
          tools: [
            {
              toolCallId: 'x',
              title: 'Write a.txt',
              input: { path: 'a.txt', content: 'A' },
              output: 'Wrote 1 byte',
              status: 'completed',
            },
          ],
        },
      ],
      resume: [
        {
          role: 'assistant',
          content: '',
          tools: [
            {
              toolCallId: 'y',
              title: 'make deploy',
              input: { command: 'make deploy' },
              output: null,
              status: 'unknown',
            },
          ],
        },
      ],
    });
    const told = bodyText(model.requests[0]);
    const order = [
      'make a file',
      'a.txt',
      'Wrote 1 byte',
      'Made it.',
      'go on',
      'make deploy',
      'It is unknown whether it happened',
      'interrupted while you worked',
    ];
    const places = order.map((piece) => told.indexOf(piece));
    assert.ok(
      places.every((place, index) => place >= 0 && (index === 0 || place > (places[index - 1] ?? 0))),
      `${places}: ${told}`,
    );
  });
}

test('the file that agent.json names holds the instructions, in the place of the usual ones', async (t) => {
  const { connection, model } = await startHarness(t, {
    files: { 'AGENTS.md': 'the usual', 'other.md': 'the named' },
    env: { BERTH_INSTRUCTIONS: 'other.md' },
    script: () => ({ text: ['ok'] }),
  });
  await runTurn(connection, 'hello');
  const system = JSON.stringify(model.requests[0]?.body.system);
  assert.match(system, /the named/);
  assert.doesNotMatch(system, /the usual/);
});

test('the demonstration model of the gateway makes the harness run a command and tells its output and exit code', async (t) => {
  const gateway = await startGateway({ env: {}, model: 'demo/guide' });
  t.after(() => gateway.close());
  const wire = gateway.gateway.providers().find((provider) => provider.name === 'demo')?.wire ?? 'anthropic';
  const places = await makePlaces();
  t.after(places.remove);
  await markDeployed(places);
  const env = { BERTH_MODEL: 'demo/guide', BERTH_MODEL_TOKEN: sandboxToken };
  const { connection } = await startLinked(
    t,
    { ...places, gatewaySocket: gateway.socketPath },
    launchEnv(wire, commit, env),
  );
  const turn = await runTurn(connection, 'run: echo out > made; cat made; exit 5');
  assert.deepEqual(turn.result, { outcome: 'completed' });
  assert.equal(await readFile(join(places.workspace, 'made'), 'utf8'), 'out\n');
  assert.match(turn.text, /out/);
  assert.match(turn.text, /\b5\b/);
  assert.equal(turn.tools.at(-1)?.status, 'failed');
});

test('arguments that are no JSON object are told to the model and do not end the turn', async (t) => {
  const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
  const call = { index: 0, id: 'c', function: { name: 'bash', arguments: '{"command": "echo hi' } };
  const { connection, model } = await startHarness(t, {
    wire: 'openai-chat',
    script: (_request, index) =>
      index === 0
        ? {
            raw: {
              contentType: 'text/event-stream',
              chunks: [
                event({ choices: [{ index: 0, delta: { tool_calls: [call] } }] }),
                event({ choices: [{ index: 0, delta: {}, finish_reason: 'length' }] }),
                'data: [DONE]\n\n',
              ],
            },
          }
        : { text: ['sorry'] },
  });
  const turn = await runTurn(connection, 'hello');
  assert.equal(turn.text, 'sorry');
  assert.match(bodyText(model.requests[1]), /arguments were no whole JSON object/);
});

test('a character that is cut between two pieces of the stream arrives whole', async (t) => {
  const line = Buffer.from(
    `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'ü🦀é' }, finish_reason: 'stop' }] })}\n\n`,
  );
  const chunks = Array.from(line, (byte) => Buffer.from([byte]));
  const { connection } = await startHarness(t, {
    wire: 'openai-chat',
    script: () => ({
      raw: { contentType: 'text/event-stream', chunks: [...chunks, 'data: [DONE]\n\n'] },
      gapMs: 1,
    }),
  });
  assert.equal((await runTurn(connection, 'hello')).text, 'ü🦀é');
});

test('fifty conversations run at the same time in one process, each with its own answer', async (t) => {
  const { connection } = await startHarness(t, {
    script: (request) => ({
      text: ['for ', String(request.body.messages.at(-1).content[0].text)],
      gapMs: 20,
    }),
  });
  const turns = await Promise.all(
    Array.from({ length: 50 }, (_, index) =>
      runTurn(connection, `question ${index}`, { conversationId: `conversation-${index}` }),
    ),
  );
  for (const [index, turn] of turns.entries()) assert.equal(turn.text, `for question ${index}`);
});

test('the first text of an answer is passed on before the answer is over', async (t) => {
  const passedOn = Promise.withResolvers<void>();
  t.after(() => passedOn.resolve());
  const { connection } = await startHarness(t, {
    wire: 'openai-chat',
    script: () => ({
      text: ['now', ' later'],
      hold: (event) => (event.includes('later') ? passedOn.promise : undefined),
    }),
  });
  const turn = runTurn(connection, 'hello', {
    onUpdate: (update) => {
      if (update.kind === 'text' && update.text === 'now') passedOn.resolve();
    },
  });
  assert.equal((await inTime('the turn is over', turn)).text, 'now later');
});

test('a conversation that outgrows the model is shortened and goes on', async (t) => {
  let refusals = 0;
  const { connection, model } = await startHarness(t, {
    script: (request) => {
      const body = JSON.stringify(request.body);
      if (/You write the summary/.test(body)) return { text: ['SUMMARY: they spoke of boats.'] };
      if (body.length > 60_000) {
        refusals += 1;
        return {
          error: {
            status: 400,
            message: 'prompt is too long: 30000 tokens > 20000 maximum',
            type: 'invalid_request_error',
          },
        };
      }
      return { text: ['ok'] };
    },
  });
  for (let turn = 0; turn < 12; turn++) {
    const { result } = await runTurn(connection, `turn ${turn} ${'boats '.repeat(1500)}`);
    assert.deepEqual(result, { outcome: 'completed' });
  }
  assert.ok(refusals > 0);
  const last = bodyText(model.requests.at(-1));
  assert.match(last, /SUMMARY: they spoke of boats/);
  assert.match(last, /turn 11/);
});

test('more conversations at once than sessions are kept for are all answered, and go on afterwards', async (t) => {
  const { connection } = await startHarness(t, {
    script: () => ({ text: ['first ', 'second'], gapMs: 200 }),
  });
  const conversations = Array.from({ length: 230 }, (_, index) => `conversation-${index}`);
  const ask = async (conversationId: string) => (await runTurn(connection, 'go', { conversationId })).result;
  const failed = (await Promise.all(conversations.map(ask))).filter(
    (result) => result.outcome !== 'completed',
  );
  assert.deepEqual(failed, []);
  assert.deepEqual(await ask('conversation-0'), { outcome: 'completed' });
});
