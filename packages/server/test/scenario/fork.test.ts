import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { logOf } from '../support/scenario.ts';
import type { World } from '../support/scenario-world.ts';
import { endSharedWorld, sharedWorld } from '../support/scenario-world.ts';
import { until } from '../support/until.ts';

after(endSharedWorld);

async function newAgent(world: World, name: string): Promise<string> {
  const made = await world.call('POST', '/v1/agents', { name });
  assert.equal(made.status, 201, made.text);
  return made.body.agent.id as string;
}

const fileOf = (world: World, agentId: string) => world.call('GET', `/sandbox/${agentId}/files/notes/file`);

test('a conversation goes on with another agent, which has the files and knows what was said', async () => {
  const world = await sharedWorld();
  const [agentId, toAgentId] = [await newAgent(world, 'Origin'), await newAgent(world, 'Heir')];
  await world.call('PUT', `/sandbox/${agentId}/files/notes/file`, 'kept');
  await world.call('PUT', `/sandbox/${toAgentId}/files/own`, 'replaced');
  const { conversationId, message } = (await world.send('remember the blue door', { agentId })).body;
  await world.send('behind the fork', { agentId, conversationId });
  const forked = await world.call('POST', `/v1/conversations/${conversationId}/fork`, {
    messageId: message.id,
    toAgentId,
    title: 'The heir',
  });
  assert.equal(forked.status, 201, forked.text);
  const { conversation } = forked.body;
  assert.deepEqual(
    [conversation.agentId, conversation.title, conversation.source],
    [toAgentId, 'The heir', 'fork'],
  );
  assert.equal(forked.headers.get('location'), `/v1/conversations/${conversation.id}`);
  assert.deepEqual((await world.call('GET', forked.headers.get('location')!)).body, forked.body);
  assert.equal((await fileOf(world, toAgentId)).text, 'kept');
  assert.equal((await world.call('GET', `/sandbox/${toAgentId}/files/own`)).status, 404);

  const more = await world.send('and now?', { agentId: toAgentId, conversationId: conversation.id });
  assert.deepEqual([more.status, more.body.message.content], [200, 'AND NOW?']);
  const asked = world.model.requests.findLast(({ bodyBytes }) => bodyBytes.includes('and now?'))!;
  const said = JSON.stringify(asked.body);
  assert.match(said, /remember the blue door[^]*REMEMBER THE BLUE DOOR[^]*and now\?/);
  assert.ok(!said.includes('behind the fork'));
  const log = await logOf(world.service, { conversationId: conversation.id });
  assert.deepEqual(
    log.map(({ seq }) => seq),
    log.map((_, index) => index + 1),
  );
  // What one does with the files the other does not see.
  await world.call('PUT', `/sandbox/${toAgentId}/files/notes/file`, 'changed');
  assert.equal((await fileOf(world, agentId)).text, 'kept');
  assert.equal((await world.call('GET', `/sandbox/${agentId}/snapshots`)).body.snapshots.length, 0);
});

test('a fork to an agent that the key does not see is not found, to one that it may not edit forbidden, and both change nothing', async () => {
  const world = await sharedWorld();
  const { conversationId } = (await world.send('mine')).body;
  const path = `/v1/conversations/${conversationId}/fork`;
  const fork = (key: string, body: object) => world.as(key)('POST', path, body);
  const before = await world.db.sql`select (select count(*) from runs), (select count(*) from conversations)`;
  const { owner, orgUse, agentUse, agentEdit } = world.keys;
  const missing = await fork(owner, { toAgentId: newId() });
  for (const [key, toAgentId] of [
    [owner, world.foreignAgentId],
    [owner, 'x'],
    [agentEdit, world.otherAgentId],
    [agentUse, world.otherAgentId],
  ] as const) {
    const reply = await fork(key, { toAgentId });
    assert.deepEqual([reply.status, reply.text], [404, missing.text], toAgentId);
  }
  const forbidden = await fork(orgUse, { toAgentId: world.otherAgentId });
  assert.deepEqual([forbidden.status, forbidden.body.code], [403, 'scope_insufficient']);
  const wrong = await fork(owner, { messageId: newId() });
  assert.deepEqual([wrong.status, wrong.body.details[0].path], [400, 'messageId']);
  assert.deepEqual(
    await world.db.sql`select (select count(*) from runs), (select count(*) from conversations)`,
    before,
  );
  // Its own agent is no other agent: that takes no more than to converse.
  for (const body of [{}, { toAgentId: world.agentId }])
    assert.equal((await fork(agentUse, body)).status, 201);
});

test('a fork waits for nothing: while a turn is under way in the conversation or in the other agent it is refused', async () => {
  const world = await sharedWorld();
  const [agentId, toAgentId] = [await newAgent(world, 'Busy'), await newAgent(world, 'Idle')];
  await world.call('PUT', `/sandbox/${agentId}/files/notes/file`, 'mine');
  await world.call('PUT', `/sandbox/${toAgentId}/files/notes/file`, 'theirs');
  const { conversationId } = (await world.send('at rest', { agentId: toAgentId })).body;
  const held = (await world.send('hold: forking', { agentId }, { prefer: 'respond-async' })).body;
  await until('the turn is in the sandbox', async () => {
    return (await world.call('GET', `/sandbox/${agentId}`)).body.sandbox.runningTurns === 1;
  });
  const busy = await world.call('POST', `/v1/conversations/${held.conversationId}/fork`, { toAgentId });
  assert.deepEqual([busy.status, busy.body.code], [409, 'conversation_busy']);
  const under = await world.call('POST', `/v1/conversations/${conversationId}/fork`, { toAgentId: agentId });
  assert.deepEqual([under.status, under.body.code], [409, 'conflict']);
  assert.equal((await fileOf(world, agentId)).text, 'mine');
  assert.equal((await fileOf(world, toAgentId)).text, 'theirs');
  world.release('forking');
  await until('it has ended', async () => {
    return (await world.call('GET', `/v1/runs/${held.runId}`)).body.run.status === 'completed';
  });
  const forked = await world.call('POST', `/v1/conversations/${held.conversationId}/fork`, { toAgentId });
  assert.equal(forked.status, 201, forked.text);
  assert.equal((await fileOf(world, toAgentId)).text, 'mine');
});
