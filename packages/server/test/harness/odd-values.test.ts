import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agentSource, endTurn, startForeign } from '../support/foreign-agent.ts';
import { runTurn } from '../support/harness-fixture.ts';

/** Texts of JSON: what templates, sorting and recursion stumble over. */
const oddities: Record<string, string> = {
  'an object that makes no text': '{"toString":1,"valueOf":1,"toJSON":1}',
  'deep arrays': '"DEEP ARRAYS"',
  'deep objects': '"DEEP OBJECTS"',
  'a prototype': '{"__proto__":{"length":-1},"constructor":null,"then":1}',
  nothing: 'null',
  'a number beyond all': '1e999',
  'a list of nothing': '[null,[],{}]',
  'half a pair': '"\\ud83d"',
};

/** One message each; ODD stands at one place after the other. */
const messages = [
  '{"jsonrpc":"2.0","method":"session/update","params":ODD}',
  '{"jsonrpc":"2.0","method":ODD,"params":{}}',
  '{"jsonrpc":"2.0","id":ODD,"method":"session/request_permission","params":{}}',
  '{"jsonrpc":"2.0","id":ODD,"result":{}}',
  '{"jsonrpc":"2.0","id":99999,"error":ODD}',
  '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":ODD,"update":{}}}',
  ...['session/request_permission', '_berth.dev/record', 'no/such'].map(
    (method) => `{"jsonrpc":"2.0","id":"a","method":"${method}","params":{"sessionId":ODD}}`,
  ),
  ...[
    '"toolCall":ODD,"options":[]',
    '"toolCall":{"toolCallId":ODD,"title":ODD,"rawInput":ODD},"options":ODD',
    '"toolCall":{"toolCallId":"p"},"options":[ODD,{"optionId":ODD,"name":ODD,"kind":ODD}]',
  ].map(
    (asked) =>
      `{"jsonrpc":"2.0","id":"b","method":"session/request_permission","params":{"sessionId":"SESSION",${asked}}}`,
  ),
  ...[
    'ODD',
    '{"sessionUpdate":ODD}',
    '{"sessionUpdate":"agent_message_chunk","content":ODD}',
    '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":ODD}}',
    '{"sessionUpdate":"agent_thought_chunk","content":{"type":"resource","resource":ODD}}',
    '{"sessionUpdate":"agent_message_chunk","content":{"type":"resource_link","name":ODD,"uri":ODD}}',
    '{"sessionUpdate":"plan","entries":ODD}',
    '{"sessionUpdate":"plan","entries":[ODD,{"content":ODD,"status":ODD,"priority":ODD}]}',
    '{"sessionUpdate":"tool_call","toolCallId":ODD}',
    '{"sessionUpdate":"tool_call","toolCallId":"UNIQUE","title":ODD,"kind":ODD,"status":ODD,"rawInput":ODD,"rawOutput":ODD}',
    '{"sessionUpdate":"tool_call","toolCallId":"UNIQUE","content":[ODD,{"type":"content","content":ODD},{"type":"diff","path":ODD}]}',
  ].map(
    (update) =>
      `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"SESSION","update":${update}}}`,
  ),
];

/** The message is a JSON array of lines. What is nested is made here, since it would be too long to send. */
const program = agentSource(`
  if (method !== 'session/prompt') return;
  for (const line of JSON.parse(text)) {
    // As deep as the names and values of one line allow.
    const places = Math.max(1, line.split('DEEP').length - 1);
    const nest = (levels, open, middle, close) => open.repeat(levels / places) + middle + close.repeat(levels / places);
    process.stdout.write(line.replaceAll('SESSION', params.sessionId)
      .replaceAll('"DEEP ARRAYS"', nest(45_000, '[', '', ']')).replaceAll('"DEEP OBJECTS"', nest(22_500, '{"a":', '1', '}')) + '\\n');
  }
  ${endTurn}`);

for (const [what, odd] of Object.entries(oddities)) {
  test(`${what} at any place of what a harness says ends neither the service nor its turn`, async (t) => {
    const { connection } = await startForeign(t, program);
    for (const [index, message] of messages.entries()) {
      const line = message.replaceAll('ODD', odd).replaceAll('UNIQUE', `${index}`);
      const { result, updates } = await runTurn(connection, JSON.stringify([line]));
      assert.deepEqual(result, { outcome: 'completed' }, message);
      // What is told can be written.
      JSON.stringify(updates);
    }
  });
}

test('a character that is split between two pieces of an answer is told whole', async (t) => {
  const source = agentSource(`
    for (const text of ['a\\ud83d', '\\ude00b']) {
      for (const sessionUpdate of ['agent_message_chunk', 'agent_thought_chunk'])
        update(params.sessionId, { sessionUpdate, content: { type: 'text', text } });
    }
    ${endTurn}`);
  const { connection } = await startForeign(t, source);
  const { updates } = await runTurn(connection, 'go');
  const joined = (wanted: string) =>
    updates.flatMap((update) =>
      (update.kind === 'text' || update.kind === 'thought') && update.kind === wanted ? [update.text] : [],
    );
  assert.equal(joined('text').join(''), 'a😀b');
  assert.equal(joined('thought').join(''), 'a😀b');
});
