import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { questionOf, endSharedWorld, sharedWorld } from '../support/scenario-world.ts';

after(endSharedWorld);

test('quick start: list agents as a bare array, send with a null conversation, go on in it, read it back', async () => {
  const world = await sharedWorld();
  const call = world.as(world.keys.agentUse);
  const listed = await call('GET', '/api/v2/agents');
  assert.ok(Array.isArray(listed.body));
  const agentId = listed.body[0].id as string;
  assert.equal(agentId, world.agentId);
  const first = await call('POST', '/api/v1/chat/send', {
    agentId,
    conversationId: null,
    content: 'good day',
  });
  assert.equal(first.status, 200);
  const { conversationId, runId, message, status } = first.body;
  assert.deepEqual(
    [first.body.agentId, status, message.role, message.content],
    [agentId, 'completed', 'assistant', 'GOOD DAY'],
  );
  assert.deepEqual(
    [message.agentId, message.conversationId, message.runId],
    [agentId, conversationId, runId],
  );
  const { inputTokens, outputTokens, cost } = first.body.usage;
  assert.ok(inputTokens > 0 && outputTokens > 0);
  assert.match(cost, /^\d+\.\d{6}$/);
  const second = await call('POST', '/api/v1/chat/send', { agentId, conversationId, content: 'and again' });
  assert.equal(second.body.conversationId, conversationId);
  // The model was told what was said before.
  const request = world.model.requests.findLast((one) => questionOf(one) === 'and again');
  const said = JSON.stringify(request?.body.messages);
  assert.ok(said.includes('good day') && said.includes('GOOD DAY'), said);
  const { messages } = (await call('GET', `/v1/conversations/${conversationId}/messages`)).body;
  assert.deepEqual(
    messages.map(({ role, content }: { role: string; content: string }) => [role, content]),
    [
      ['assistant', 'AND AGAIN'],
      ['user', 'and again'],
      ['assistant', 'GOOD DAY'],
      ['user', 'good day'],
    ],
  );
  assert.deepEqual(messages[2], message);
  const { conversation } = (await call('GET', `/v1/conversations/${conversationId}`)).body;
  assert.deepEqual(
    [conversation.agentId, conversation.title, conversation.source],
    [agentId, 'good day', 'api'],
  );
});

test('a send without conversationId starts a new conversation, as null does', async () => {
  const { send } = await sharedWorld();
  const [one, two] = [await send('new'), await send('new', { conversationId: null })];
  assert.notEqual(one.body.conversationId, two.body.conversationId);
});

test('the bare array is the list of /v1, paged by the Link header', async () => {
  const { call, service } = await sharedWorld();
  for (let count = 0; count < 5; count += 1) await call('POST', '/v1/agents', { name: `Linked ${count}` });
  const { agents } = (await call('GET', '/v1/agents?limit=100')).body;
  const found: unknown[] = [];
  let path: string | undefined = '/api/v2/agents?limit=2';
  while (path !== undefined) {
    const page = await call('GET', path);
    found.push(...page.body);
    const link = /^<([^>]+)>; rel="next"$/.exec(page.headers.get('link') ?? '');
    assert.ok(link || page.headers.get('link') === null, page.headers.get('link')!);
    if (link) assert.equal(new URL(link[1]!).port, String(service.port));
    path = link ? new URL(link[1]!).pathname + new URL(link[1]!).search : undefined;
    if (found.length >= agents.length) break;
  }
  assert.deepEqual(found.slice(0, agents.length), agents);
});

test('an agent has the six specified fields as texts, whatever was given, and its own address', async () => {
  const { call, service } = await sharedWorld();
  const made = await call('POST', '/v1/agents', { name: 'Six' });
  const { agent } = made.body;
  assert.equal(made.headers.get('location'), `/v1/agents/${agent.id}`);
  for (const field of ['id', 'name', 'url', 'description', 'model', 'gitUrl']) {
    assert.equal(typeof agent[field], 'string', field);
  }
  assert.equal(agent.description, '');
  assert.equal(agent.model, 'scripted/one');
  assert.equal(agent.url, `http://${agent.id}.localhost:${service.port}`);
  assert.equal(agent.gitUrl, `http://localhost:${service.port}/git/${agent.id}.git`);
  const got = await call('GET', `/v1/agents/${agent.id}`);
  assert.deepEqual(Object.keys(got.body), ['agent']);
  const given = { name: 'Seven', description: 'Says things.', model: 'scripted/one' };
  const changed = await call('PATCH', `/v1/agents/${agent.id}`, given);
  assert.deepEqual({ ...changed.body.agent, ...given }, changed.body.agent);
  assert.ok(changed.body.agent.updatedAt > agent.updatedAt);
  assert.equal((await call('DELETE', `/v1/agents/${agent.id}`)).status, 204);
  assert.equal((await call('GET', `/v1/agents/${agent.id}`)).status, 404);
});

test('keys are listed while they are active, with the specified fields and never a value; secrets by name only', async () => {
  const { call, as } = await sharedWorld();
  const { agent } = (await call('POST', '/v1/agents', { name: 'Keyed' })).body;
  const path = `/v1/agents/${agent.id}/api-keys`;
  const minted = await call('POST', path, { name: 'CI' });
  const { key, value } = minted.body;
  assert.equal((await as(value)('GET', `/v1/agents/${agent.id}`)).status, 200);
  const { keys } = (await call('GET', path)).body;
  assert.deepEqual(
    keys.map((one: { id: string; name: string; prefix: string }) => [one.id, one.name, one.prefix]),
    [[key.id, 'CI', value.slice(0, 15)]],
  );
  assert.ok(['lastUsedAt', 'createdAt'].every((field) => field in keys[0]));
  assert.equal((await call('DELETE', `${path}/${key.id}`)).status, 204);
  assert.deepEqual((await call('GET', path)).body.keys, []);
  const secret = `/v1/agents/${agent.id}/secrets`;
  assert.equal((await call('PUT', `${secret}/TOKEN`, { value: 'one' })).status, 204);
  assert.equal((await call('PUT', `${secret}/TOKEN`, { value: 'two' })).status, 204);
  const { secrets } = (await call('GET', secret)).body;
  assert.deepEqual(
    secrets.map((one: object) => ('value' in one ? 'a value' : (one as { key: string }).key)),
    ['TOKEN'],
  );
  assert.equal((await call('DELETE', `${secret}/TOKEN`)).status, 204);
  assert.deepEqual((await call('GET', secret)).body.secrets, []);
});
