import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { checkReport, nowhere, searcher } from '../support/secret-search.ts';
import { checkLog, logOf, workshop, type Pushed } from '../support/scenario.ts';
import { startScriptedModel, type Script, type ScriptedRequest } from '../support/scripted-model.ts';
import { startService } from '../support/service.ts';

const files = {
  'AGENTS.md': 'You search for what is hidden.\n',
  'search.cjs': searcher,
  'note.txt': 'visible-marker-7351\n',
};

function toolResult(request: ScriptedRequest): string | undefined {
  const last = request.body.messages.at(-1);
  if (last.role === 'tool') return String(last.content);
  if (last.role !== 'user' || !Array.isArray(last.content)) return undefined;
  const result = last.content.find((block: { type: string }) => block.type === 'tool_result');
  return result && JSON.stringify(result.content);
}

/** The model asks for the search, an edit, and then says what came back. */
function script(secret: string): Script {
  const half = secret.slice(0, 20);
  const command = `node search.cjs ${half} ${secret.slice(20)} visible-marker-7351; echo found >> note.txt; env`;
  return (request) => {
    const result = toolResult(request);
    if (result !== undefined) return { text: ['I ', 'found: ', result] };
    const isFirst = JSON.stringify(request.body).includes('please look');
    return isFirst && request.body.messages.length <= 2
      ? { text: ['Let me look.'], toolCalls: [{ name: 'bash', input: { command } }] }
      : { text: ['Earlier you asked me to look.'] };
  };
}

test('Over both wires a turn calls a tool, streams and is remembered, and the provider keys are nowhere to be found.', async (t) => {
  const makeKey = () => `sk-${randomBytes(24).toString('hex')}`;
  const keys = { anthropic: makeKey(), openai: makeKey() };
  const all: string[] = Object.values(keys);
  // What a request came with decides what its answer searches for, so the key of each agent is looked for in its own.
  const model = await startScriptedModel((request, index) => script(keyOf(request))(request, index));
  t.after(() => model.close());
  const service = await startService({
    env: {
      ANTHROPIC_BASE_URL: model.url,
      ANTHROPIC_API_KEY: keys.anthropic,
      OPENAI_BASE_URL: model.openaiUrl,
      OPENAI_API_KEY: keys.openai,
    },
  });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());

  const talks: { agent: Pushed; conversationId: string; key: string }[] = [];
  for (const wire of ['anthropic', 'openai'] as const) {
    for (const own of [null, makeKey()]) {
      const agent = await shop.agent(files, { model: `${wire}/scripted-1` });
      if (own !== null) {
        all.push(own);
        const set = (name: string, value: string) =>
          service.api('PUT', `/v1/agents/${agent.id}/secrets/${name}`, { value });
        assert.equal((await set(`${wire.toUpperCase()}_API_KEY`, own)).status, 204);
        assert.equal((await set('PLAIN', 'plain-secret-value')).status, 204);
      }
      const key = own ?? keys[wire];
      const from = model.requests.length;
      const answered = await agent.say('please look');
      assert.equal(answered.status, 'completed', JSON.stringify(answered));
      checkReport(answered.message.content);
      assert.equal(/PLAIN=plain-secret-value/.test(answered.message.content), own !== null);
      const first = model.requests[from]!;
      assert.equal(first.wire, wire === 'anthropic' ? 'anthropic' : 'openai-chat');
      assert.equal(keyOf(first), key);
      assert.equal(first.body.model, 'scripted-1');
      assert.match(JSON.stringify(first.body), /You search for what is hidden/);
      assert.ok(answered.usage.inputTokens >= 20, JSON.stringify(answered.usage));
      talks.push({ agent, key, conversationId: answered.conversationId });
    }
  }

  await service.restart();
  for (const { agent, conversationId, key } of talks) {
    const again = await agent.say('What did I ask?', conversationId);
    assert.equal(again.message.content, 'Earlier you asked me to look.');
    const last = model.requests.at(-1)!;
    assert.equal(keyOf(last), key);
    assert.match(JSON.stringify(last.body.messages), /please look[\s\S]*What did I ask/);
    const events = await logOf(service, { conversationId });
    checkLog(events);
    for (const secret of all) assert.equal(JSON.stringify(events).includes(secret), false);
  }
  const bodies = model.requests.map((request) => request.bodyBytes.toString());
  await service.stop();
  for (const secret of all) nowhere(service, secret, bodies);
});

function keyOf(request: ScriptedRequest): string {
  if (request.wire === 'anthropic') return String(request.headers['x-api-key']);
  return String(request.headers.authorization).replace('Bearer ', '');
}
