import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runTurn, startHarness } from '../support/harness-fixture.ts';
import type { TestedWire } from '../support/harness-fixture.ts';

const png =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

test('the built-in agent hands a file over as an artifact, and asks its caller', async (t) => {
  const { connection, model } = await startHarness(t, {
    files: { 'report.md': '# All is well' },
    script: (_request, index) =>
      index === 0
        ? {
            toolCalls: [
              { id: 'one', name: 'publish', input: { file: 'report.md', title: 'Report' } },
              { id: 'two', name: 'ask', input: { question: 'Send it?', options: ['yes', 'no'] } },
            ],
          }
        : { text: ['done'] },
  });
  const turn = await runTurn(connection, 'Report.', {
    onQuestion: async (question) => {
      assert.equal(question.kind, 'input');
      return { kind: 'input', action: 'accept', content: { answer: 'yes' }, message: null };
    },
  });
  assert.deepEqual([turn.result, turn.text], [{ outcome: 'completed' }, 'done']);
  const [artifact] = turn.updates.filter((update) => update.kind === 'artifact');
  const bytes = Buffer.from('# All is well').toString('base64');
  assert.deepEqual(artifact?.parts, [{ kind: 'file', name: 'report.md', mediaType: 'text/markdown', bytes }]);
  assert.equal(artifact?.name, 'Report');
  const [question] = turn.questions;
  assert.equal(question?.kind === 'input' && question.message, 'Send it?');
  const told = JSON.stringify(model.requests[1]?.body.messages);
  assert.match(told, /The user has Report \(13 bytes\)/);
  assert.match(told, /"yes"/);
});

test('a turn that is cancelled while it asks ends, and waits for no answer', async (t) => {
  const { connection } = await startHarness(t, {
    script: () => ({ toolCalls: [{ id: 'one', name: 'ask', input: { question: 'Which?' } }] }),
  });
  const stop = new AbortController();
  const turn = await runTurn(connection, 'Ask.', {
    signal: stop.signal,
    onQuestion: () => {
      stop.abort();
      return new Promise(() => {});
    },
  });
  assert.equal(turn.result.outcome, 'cancelled');
});

for (const wire of ['anthropic', 'openai-chat'] as TestedWire[]) {
  test(`over ${wire}, an image that a user sends is before the model in every call of its turn`, async (t) => {
    const { connection, model } = await startHarness(t, {
      wire,
      script: (_request, index) =>
        index === 0
          ? { toolCalls: [{ id: 'one', name: 'bash', input: { command: 'true' } }] }
          : { text: ['a dot'] },
    });
    const parts = [{ kind: 'file' as const, name: 'dot.png', mediaType: 'image/png', bytes: png }];
    const extras = { parts, clientMessageId: null, metadata: null };
    const turn = await runTurn(connection, 'What is it?', { extras });
    assert.equal(turn.text, 'a dot');
    assert.equal(model.requests.length, 2);
    for (const { body } of model.requests) {
      const text = JSON.stringify(body.messages);
      assert.equal(text.split(png).length, 2, 'once');
      assert.match(text, wire === 'anthropic' ? /"media_type":"image\/png"/ : /data:image\/png;base64,/);
    }
  });
}
