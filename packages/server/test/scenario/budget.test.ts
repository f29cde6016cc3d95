import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { checkLog, logOf } from '../support/scenario.ts';
import { openServiceDatabase } from '../support/scenario-world.ts';
import { startScriptedModel, type ScriptedModel, type ScriptedRequest } from '../support/scripted-model.ts';
import { startService, type Reply, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';

const modelKey = `sk-${randomBytes(24).toString('hex')}`;
const folder = mkdtempSync('/tmp/berth-b-');
let model: ScriptedModel;
let service: Service;
/** Set while the model shall not answer. */
let gate: { promise: Promise<void>; open: () => void } | null = null;

/** Each answer costs 0.02 dollars: 10 tokens in, 5 out. A question that begins with `work` makes it call a tool first. */
async function script(request: ScriptedRequest) {
  await gate?.promise;
  const usage = { input: 10, output: 5 };
  const last = request.body.messages.at(-1);
  const text = JSON.stringify(last.content);
  const isQuestion = last.role === 'user' && !text.includes('tool_result');
  if (!isQuestion || !text.includes('work')) return { text: ['done'], usage };
  return { toolCalls: [{ name: 'bash', input: { command: 'echo worked' } }], usage };
}

before(async () => {
  model = await startScriptedModel(script);
  const prices = { one: { input: '1000', output: '2000' } };
  const shared = { apiKeyVariable: 'PRICED_KEY', models: ['one'], prices };
  const providers = {
    messages: { ...shared, wire: 'anthropic', baseUrl: model.url },
    chat: { ...shared, wire: 'openai-chat', baseUrl: model.openaiUrl },
  };
  writeFileSync(join(folder, 'providers.json'), JSON.stringify(providers));
  service = await startService({
    env: { BERTH_MODEL_PROVIDERS: join(folder, 'providers.json'), PRICED_KEY: modelKey },
  });
});
after(async () => {
  gate?.open();
  await service?.end();
  await model?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function agentOf(name: string, provider = 'chat'): Promise<string> {
  const made = await service.api('POST', '/v1/agents', { name, model: `${provider}/one` });
  assert.equal(made.status, 201, made.text);
  return made.body.agent.id as string;
}

const send = (agentId: string, content: string, headers: Record<string, string> = {}): Promise<Reply> =>
  service.api('POST', '/api/v1/chat/send', { agentId, content }, headers);

async function setBudget(path: string, limit: string, period = 'day'): Promise<void> {
  const set = await service.api('PUT', path, { period, limit });
  assert.equal(set.status, 200, set.text);
}

// oxlint-disable-next-line no-explicit-any -- tests read into answers of all routes
async function budgetAt(path: string): Promise<any> {
  return (await service.api('GET', path)).body.budget;
}

/** How many rows everything that a send writes has. */
async function rows(): Promise<string> {
  const db = openServiceDatabase(service);
  try {
    const [row] = await db.sql`
      select (select count(*)::int from conversations) as conversations, (select count(*)::int from runs) as runs,
        (select count(*)::int from messages) as messages, (select count(*)::int from events) as events,
        (select count(*)::int from idempotency) as idempotency`;
    return JSON.stringify(row);
  } finally {
    await db.close();
  }
}

const nowhereIn = (texts: string[], secrets: string[]) => {
  for (const text of texts) for (const secret of secrets) assert.ok(!text.includes(secret), secret);
};

for (const provider of ['messages', 'chat']) {
  test(`402: over the ${provider} wire a budget ends the turn that uses it up, refuses the next message, and holds no other agent`, async () => {
    const agentId = await agentOf('Capped', provider);
    const path = `/v1/agents/${agentId}/budget`;
    await setBudget(path, '0.03');
    const first = await send(agentId, 'hello');
    assert.deepEqual(
      [first.status, first.body.status, first.body.usage.cost],
      [200, 'completed', '0.020000'],
      first.text,
    );
    assert.deepEqual(
      [(await budgetAt(path)).spent, (await budgetAt(path)).reserved],
      ['0.020000', '0.000000'],
    );

    // The second call of this turn finds the budget used up by the first.
    const calls = model.requests.length;
    const second = await send(agentId, 'work, please');
    assert.equal(second.status, 200, second.text);
    assert.deepEqual([second.body.status, second.body.message], ['failed', null], second.text);
    assert.equal(second.body.error.code, 'budget_exceeded', second.text);
    assert.match(second.body.error.error, /The agent's budget of 0\.030000 dollars for this day is used up/);
    assert.equal(model.requests.length, calls + 1);
    const run = (await service.api('GET', `/v1/runs/${second.body.runId}`)).body.run;
    assert.deepEqual([run.status, run.error.code, run.usage.cost], ['failed', 'budget_exceeded', '0.020000']);
    const events = await logOf(service, { runId: second.body.runId });
    assert.equal(events.find((event) => event.type === 'run.failed')?.data.error.code, 'budget_exceeded');
    checkLog(await logOf(service, { conversationId: second.body.conversationId }));
    assert.deepEqual(
      [(await budgetAt(path)).spent, (await budgetAt(path)).reserved],
      ['0.040000', '0.000000'],
    );

    const before = await rows();
    const refusals = [
      await send(agentId, 'more', { 'idempotency-key': `refused ${provider}` }),
      await send(agentId, 'more', { accept: 'text/event-stream' }),
      await send(agentId, 'more', { prefer: 'respond-async' }),
    ];
    for (const refused of refusals) {
      assert.deepEqual([refused.status, refused.body.code], [402, 'budget_exceeded'], refused.text);
      assert.match(refused.headers.get('content-type') ?? '', /^application\/json/);
      assert.match(refused.body.error, /used up.*begins anew at \d{4}-\d\d-\d\dT00:00:00\.000Z/);
    }
    assert.equal(await rows(), before);
    assert.equal(model.requests.length, calls + 1);

    const other = await send(await agentOf('Free', provider), 'hello');
    assert.equal(other.body.status, 'completed', other.text);
    // Raised, it holds no more at once; the refused Idempotency-Key may be used again.
    await setBudget(path, '0.05');
    const third = await send(agentId, 'more', { 'idempotency-key': `refused ${provider}` });
    assert.equal(third.body.status, 'completed', third.text);
    assert.equal((await service.api('DELETE', path)).status, 204);
    assert.equal((await send(agentId, 'hello')).body.status, 'completed');
    nowhereIn([...refusals.map((one) => one.text), JSON.stringify(events), service.logs()], [modelKey]);
  });
}

test("the organisation's budget holds for every agent, is the sum of theirs, and its figures are not told to agents and their keys", async () => {
  const agentId = await agentOf('One of many');
  const minted = await service.api('POST', `/v1/agents/${agentId}/api-keys`, { name: 'bound' });
  await setBudget('/v1/budget', '987.654321', 'month');
  const spent = (await budgetAt('/v1/budget')).spent as string;
  const db = openServiceDatabase(service);
  try {
    const [sum] = await db.sql`
      select sum(cost_micros)::text as org, (select sum(cost_micros)::text from usage_ledger) as ledger
      from spending s where exists (select 1 from agents a where a.id = s.owner_id)`;
    const micros = String(BigInt(spent.replace('.', '')));
    assert.deepEqual({ ...sum }, { org: micros, ledger: micros });
  } finally {
    await db.close();
  }
  await setBudget('/v1/budget', spent, 'month');
  const refused = await service.as(minted.body.value)('POST', '/api/v1/chat/send', {
    agentId,
    content: 'hello',
  });
  assert.deepEqual([refused.status, refused.body.code], [402, 'budget_exceeded']);
  assert.match(refused.body.error, /^The organisation's budget for this month is used up/);
  nowhereIn([refused.text], [spent, modelKey]);
  assert.equal((await service.api('DELETE', '/v1/budget')).status, 204);
  assert.equal((await send(agentId, 'hello')).body.status, 'completed');
});

test('of many messages at the same moment so many are answered as the budget pays for, and one call more at most', async () => {
  const agentId = await agentOf('Crowded');
  const path = `/v1/agents/${agentId}/budget`;
  await setBudget(path, '0.11');
  const sent = await Promise.all(Array.from({ length: 12 }, (_, index) => send(agentId, `hello ${index}`)));
  const ends = sent.map(({ status, body }) =>
    status === 402 ? body.code : (body.error?.code ?? body.status),
  );
  assert.equal(ends.filter((end) => end === 'completed').length, 6, ends.join(' '));
  assert.equal(ends.filter((end) => end === 'budget_exceeded').length, 6, ends.join(' '));
  assert.deepEqual([(await budgetAt(path)).spent, (await budgetAt(path)).reserved], ['0.120000', '0.000000']);
});

test('kill -9 in the middle of a model call leaves nothing set aside, and the run goes on within its budget', async () => {
  const agentId = await agentOf('Killed');
  const path = `/v1/agents/${agentId}/budget`;
  await setBudget(path, '0.03');
  const held = Promise.withResolvers<void>();
  gate = { promise: held.promise, open: () => held.resolve() };
  const sent = await send(agentId, 'hello', { prefer: 'respond-async' });
  assert.equal(sent.status, 202, sent.text);
  await until('the call is under way', async () => (await budgetAt(path)).reserved !== '0.000000');
  const reserved = (await budgetAt(path)).reserved as string;
  await service.kill9();
  await service.restart();
  // The next attempt's call is the only one for which something is set aside.
  await until('the call is made again', async () => (await budgetAt(path)).reserved === reserved);
  held.resolve();
  gate = null;
  const ended = async () =>
    (await service.api('GET', `/v1/runs/${sent.body.runId}`)).body.run.status === 'completed';
  await until('the run is completed', ended);
  assert.deepEqual([(await budgetAt(path)).spent, (await budgetAt(path)).reserved], ['0.020000', '0.000000']);
});
