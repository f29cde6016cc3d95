import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Answer } from '../../src/domain/questions.ts';
import { agentSource, endTurn, startForeign } from '../support/foreign-agent.ts';
import { runTurn } from '../support/harness-fixture.ts';
import { inTime } from '../support/until.ts';

/** The message is a program; `drained` waits until the output has gone. */
const program = agentSource(`
  const drained = () => new Promise((r) => process.stdout.writableNeedDrain ? process.stdout.once('drain', r) : setImmediate(r));
  if (method !== 'session/prompt') return;
  const tell = (data) => update(params.sessionId, data);
  const speak = (text) => tell({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });
  await (0, eval)('(async ({ tell, speak, drained, say, ask, session }) => {' + text + '})')(
    { tell, speak, drained, say, ask, session: params.sessionId });
  ${endTurn}`);

/** What a turn may tell is not waited for here: at the usual pace it takes half a minute. */
const pace = { burst: 2 ** 40, perSecond: 2 ** 40 };

test('a turn that writes text without end fails with a reason, and the next one is answered', async (t) => {
  const { connection } = await startForeign(t, program);
  const flood = await runTurn(
    connection,
    `for (let i = 0; i < 200; i++) { speak('x'.repeat(10_000)); await drained(); }`,
  );
  assert.deepEqual(flood.result, {
    outcome: 'failed',
    code: 'harness_error',
    message: 'The harness wrote more than 1048576 characters of text in one turn. The turn was ended.',
  });
  assert.ok(flood.text.length > 1_000_000 && flood.text.length <= 1_048_576, `${flood.text.length}`);
  assert.equal((await runTurn(connection, `speak('well')`)).text, 'well');
});

test('a turn that sends empty events without end fails with a reason', async (t) => {
  const { connection } = await startForeign(t, program, { pace });
  const flood = await runTurn(
    connection,
    `for (let i = 0; i < 80_000; i++) { tell({ sessionUpdate: 'plan', entries: [] }); if (i % 100 === 0) await drained(); }`,
  );
  assert.ok(flood.result.outcome === 'failed', JSON.stringify(flood.result));
  assert.match(flood.result.message, /told more than 64 MiB in one turn/);
});

for (const [what, update] of [
  ['of an unknown kind', `{ sessionUpdate: 'nothing_known' }`],
  ['of an unknown kind with many values', `{ sessionUpdate: 'nothing_known', x: Array(5_000).fill({}) }`],
  ['without text', `{ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: '' } }`],
  ['of a call that has ended', `{ sessionUpdate: 'tool_call_update', toolCallId: 'a', status: 'completed' }`],
] as const) {
  test(`a turn that sends updates ${what} without end fails with a reason, and the next one is answered`, async (t) => {
    const { connection } = await startForeign(t, program, { pace });
    const flood = await runTurn(
      connection,
      `tell({ sessionUpdate: 'tool_call', toolCallId: 'a', title: 'a', status: 'completed' });
       const update = ${update};
       const line = JSON.stringify({ jsonrpc: '2.0', method: 'session/update', params: { sessionId: session, update } }) + '\\n';
       // A little more than the measure: much more would end the harness after its turn was cut off.
       const values = line.replaceAll('{}', '1').match(/[,:[{]/g).length;
       const count = Math.ceil(66 * 1024 * 1024 / Math.max(128, line.length - 256, 16 * values - 256));
       const chunk = line.repeat(Math.ceil(64 * 1024 / line.length));
       for (let i = 0; i < count; i += chunk.length / line.length) { process.stdout.write(chunk); await drained(); }`,
    );
    assert.ok(flood.result.outcome === 'failed', JSON.stringify(flood.result));
    assert.match(flood.result.message, /told more than 64 MiB in one turn/);
    assert.equal((await runTurn(connection, `speak('well')`)).text, 'well');
  });
}

test('a text of the longest kind that is told in single words is no excess', async (t) => {
  const { connection } = await startForeign(t, program, { pace });
  const { result, text } = await runTurn(
    connection,
    `for (let i = 0; i < 200_000; i++) { speak('word '); if (i % 100 === 0) await drained(); }`,
  );
  assert.deepEqual(result, { outcome: 'completed' });
  assert.equal(text.length, 1_000_000);
});

test('more blank lines than the launcher keeps are taken like others, and the turn goes on', async (t) => {
  const { connection } = await startForeign(t, program);
  const { result, text } = await inTime(
    'it is answered',
    runTurn(
      connection,
      `const line = ' '.repeat(1024 * 1024) + '\\n';
       for (let i = 0; i < 12; i++) { process.stdout.write(line); await drained(); }
       speak('well');`,
    ),
  );
  assert.deepEqual(result, { outcome: 'completed' });
  assert.equal(text, 'well');
});

test('a harness that writes blank lines without end is ended', async (t) => {
  const { connection, exited } = await startForeign(t, program);
  const { result } = await inTime(
    'it is ended',
    runTurn(connection, `for (;;) { process.stdout.write('\\n'.repeat(64 * 1024)); await drained(); }`),
  );
  assert.ok(result.outcome === 'failed', JSON.stringify(result));
  assert.match(result.message, /outside of its turns/);
  await exited;
});

test('a call with an input of megabytes becomes events of an ordinary size', async (t) => {
  const { connection } = await startForeign(t, program);
  const { result, updates } = await runTurn(
    connection,
    `const input = Array.from({ length: 60 }, () => ({ ['k'.repeat(150)]: 'x'.repeat(60_000) }));
     tell({ sessionUpdate: 'tool_call', toolCallId: 'a', title: 'a', rawInput: input, rawOutput: input });
     tell({ sessionUpdate: 'tool_call_update', toolCallId: 'a', status: 'completed' });`,
  );
  assert.deepEqual(result, { outcome: 'completed' });
  const sizes = updates.map((update) => JSON.stringify(update).length);
  assert.equal(sizes.length, 2);
  assert.ok(
    sizes.every((size) => size > 60_000 && size < 200_000),
    sizes.join(),
  );
});

test('a harness that asks without end and does not read the answers is ended', async (t) => {
  const { connection, exited } = await startForeign(t, program);
  const { result } = await runTurn(
    connection,
    `process.stdin.pause();
     for (let i = 0; ; i++) { say({ id: 'n' + i, method: 'x'.repeat(10_000) }); await drained(); }`,
  );
  assert.ok(result.outcome === 'failed', JSON.stringify(result));
  assert.match(result.message, /outside of its turns/);
  await exited;
});

test('a harness that goes on telling after its turn was cut off is ended', async (t) => {
  const { connection, exited } = await startForeign(t, program);
  const { result } = await runTurn(connection, `for (;;) { speak('x'.repeat(100_000)); await drained(); }`);
  assert.ok(result.outcome === 'failed', JSON.stringify(result));
  await exited;
});

test('of a thousand requests for permission at once the first wait for an answer and the others are refused', async (t) => {
  const { connection } = await startForeign(t, program);
  const answers: ((answer: Answer) => void)[] = [];
  const yes: Answer = { kind: 'permission', optionId: 'yes' };
  const turn = runTurn(
    connection,
    `const options = [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }];
     let refused = 0;
     const all = await Promise.all(Array.from({ length: 1000 }, async (_, i) => {
       const { outcome } = await ask('session/request_permission',
         { sessionId: session, toolCall: { toolCallId: 'call-' + i }, options });
       if (outcome.outcome !== 'selected' && ++refused === 968) speak('All others are refused, ');
       return outcome;
     }));
     const chosen = all.filter((outcome) => outcome.outcome === 'selected').length;
     speak(chosen + ' of ' + all.length);`,
    {
      onQuestion: () => new Promise<Answer>((resolve) => answers.push(resolve)),
      // None is answered before that.
      onUpdate: (update) => {
        if (update.kind === 'text') answers.splice(0).forEach((answer) => answer(yes));
      },
    },
  );
  assert.equal((await inTime('all are answered', turn)).text, 'All others are refused, 32 of 1000');
});
