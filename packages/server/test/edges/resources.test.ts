import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';

let world: EdgeWorld;
before(async () => void (world = await edgeWorld()));
after(() => world.close());

type Json = Record<string, unknown>;

test('an agent has its six specified fields as texts, and its addresses follow the configuration', async () => {
  const created = await world.call('POST', '/v1/agents', { body: { name: 'Notes' } });
  assert.equal(created.status, 201);
  const agent = (created.json as { agent: Json }).agent;
  for (const field of ['id', 'name', 'url', 'description', 'model', 'gitUrl']) {
    assert.equal(typeof agent[field], 'string', field);
  }
  assert.equal(created.headers.get('location'), `/v1/agents/${String(agent['id'])}`);
  assert.equal(agent['description'], '');
  assert.equal(agent['url'], `http://${String(agent['id'])}.agents.localhost:8080`);
  assert.equal(agent['gitUrl'], `http://localhost:8080/git/${String(agent['id'])}.git`);
  assert.match(String(agent['createdAt']), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

  const changed = await world.call('PATCH', `/v1/agents/${String(agent['id'])}`, { body: { name: 'News' } });
  assert.equal((changed.json as { agent: Json }).agent['name'], 'News');
  const gone = await world.call('DELETE', `/v1/agents/${String(agent['id'])}`);
  assert.deepEqual([gone.status, gone.text], [204, '']);
  assert.equal((await world.call('GET', `/v1/agents/${String(agent['id'])}`)).status, 404);
});

test('an https base address gives agents https addresses', async () => {
  const secure = await edgeWorld({
    app: { addresses: { baseUrl: 'https://berth.example', appDomain: 'agents.example' } },
  });
  try {
    const reply = await secure.call('GET', `/v1/agents/${secure.agent.id}`);
    const agent = (reply.json as { agent: Json }).agent;
    assert.equal(agent['url'], `https://${secure.agent.id}.agents.example`);
    assert.equal(agent['gitUrl'], `https://berth.example/git/${secure.agent.id}.git`);
  } finally {
    await secure.close();
  }
});

test('a key value is in the answer of its creation and in no other; secrets are in none', async () => {
  const base = `/v1/agents/${world.agent.id}`;
  const minted = await world.call('POST', `${base}/api-keys`, { body: { name: 'CI' } });
  assert.equal(minted.status, 201);
  const { key, value } = minted.json as { key: Json; value: string };
  assert.match(value, /^svc_live_[0-9A-Za-z]{49}$/);
  assert.deepEqual(
    [key['scope'], key['binding'], key['agentId'], key['lastUsedAt'], key['prefix']],
    ['use', 'agent-bound', world.agent.id, null, value.slice(0, 15)],
  );
  const secret = 'hunter2-hunter2';
  const put = await world.call('PUT', `${base}/secrets/API_TOKEN`, { body: { value: secret } });
  assert.deepEqual([put.status, put.text], [204, '']);
  for (const path of [
    `${base}/api-keys`,
    '/v1/api-keys',
    `${base}/secrets`,
    base,
    '/v1/agents',
    '/api/v2/agents',
    '/metrics',
  ]) {
    const reply = await world.call('GET', path);
    assert.equal(reply.status, 200, path);
    assert.ok(!reply.text.includes(value), path);
    assert.ok(!reply.text.includes(secret), path);
  }
  const logged = JSON.stringify(world.logLines);
  assert.ok(!logged.includes(value) && !logged.includes(secret));
  const revoked = await world.call('DELETE', `${base}/api-keys/${String(key['id'])}`);
  assert.equal(revoked.status, 204);
  assert.equal((await world.call('GET', base, { key: value })).status, 401);
});

test('a bad secret name is refused with the field', async () => {
  const reply = await world.call('PUT', `/v1/agents/${world.agent.id}/secrets/1-2`, { body: { value: 'x' } });
  assert.equal(reply.status, 400);
  assert.match(reply.text, /"path":"key"/);
});

test('org-bound keys are minted and revoked with an expiry', async () => {
  const body = { name: 'Ops', scope: 'edit', binding: 'org-bound', expiresAt: '2099-01-31T12:00:00+01:00' };
  const minted = await world.call('POST', '/v1/api-keys', { body });
  assert.equal(minted.status, 201, minted.text);
  const { key } = minted.json as { key: Json };
  assert.equal(key['expiresAt'], '2099-01-31T11:00:00.000Z');
  assert.equal((await world.call('DELETE', `/v1/api-keys/${String(key['id'])}`)).status, 204);
  const bad = await world.call('POST', '/v1/api-keys', { body: { ...body, expiresAt: 'tomorrow' } });
  assert.match(bad.text, /"path":"expiresAt","message":"must be an ISO 8601 time/);
});

test('pages neither repeat nor skip, by cursor or by the Link header of the bare array', async () => {
  for (let i = 0; i < 5; i += 1) await world.call('POST', '/v1/agents', { body: { name: `Page ${i}` } });
  const whole = (await world.call('GET', '/v1/agents?limit=100')).json as {
    agents: Json[];
    nextCursor: unknown;
  };
  assert.equal(whole.nextCursor, null);
  const ids = whole.agents.map((agent) => agent['id']);
  assert.deepEqual(ids, ids.toSorted().reverse());

  const byCursor: unknown[] = [];
  for (let query: string | null = 'limit=2'; query;) {
    const page = (await world.call('GET', `/v1/agents?${query}`)).json as typeof whole & {
      nextCursor: string | null;
    };
    byCursor.push(...page.agents.map((agent) => agent['id']));
    query = page.nextCursor && `limit=2&cursor=${page.nextCursor}`;
  }
  assert.deepEqual(byCursor, ids);

  const byLink: unknown[] = [];
  for (let path: string | null = '/api/v2/agents?limit=2'; path;) {
    const page = await world.call('GET', path);
    byLink.push(...(page.json as Json[]).map((agent) => agent['id']));
    const link = page.headers.get('link');
    const next: RegExpExecArray | null = link
      ? /^<http:\/\/localhost:8080(\/api\/v2\/agents\?[^>]+)>; rel="next"$/.exec(link)
      : null;
    path = next?.[1] ?? null;
  }
  assert.deepEqual(byLink, ids);
});

test('conversations, messages and runs are shown with money as text', async () => {
  const { core, resources, agent } = world;
  const sent = await core.runs.send(resources.owner, {
    agentId: agent.id,
    conversationId: null,
    content: 'hello',
    onBusy: 'enqueue',
    source: 'api',
    idempotency: null,
  });
  core.settle(sent.runId, { message: 'hi' });
  const run = (await world.call('GET', `/v1/runs/${sent.runId}`)).json as { run: Json };
  assert.deepEqual(run.run['usage'], { inputTokens: 3, outputTokens: 5, cost: '0.001250' });
  const conversation = await world.call('GET', `/v1/conversations/${sent.conversationId}`);
  assert.equal((conversation.json as { conversation: Json }).conversation['source'], 'api');
  const messages = await world.call('GET', `/v1/conversations/${sent.conversationId}/messages`);
  assert.equal((messages.json as { messages: Json[] }).messages[0]!['content'], 'hi');
  const runs = await world.call('GET', `/v1/agents/${agent.id}/runs`, { key: world.keys.use });
  assert.equal((runs.json as { runs: Json[] }).runs[0]!['id'], sent.runId);
  const list = await world.call('GET', `/v1/agents/${agent.id}/conversations`);
  assert.equal((list.json as { conversations: Json[] }).conversations[0]!['id'], sent.conversationId);
  assert.equal((await world.call('DELETE', `/v1/conversations/${sent.conversationId}`)).status, 204);
});

test('HEAD answers as GET without a body', async () => {
  const reply = await world.call('HEAD', `/v1/agents/${world.agent.id}`);
  assert.deepEqual([reply.status, reply.text], [200, '']);
  assert.equal(reply.headers.get('content-type'), 'application/json');
});
