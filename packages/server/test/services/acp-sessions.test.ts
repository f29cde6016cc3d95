import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { createCursors } from '../../src/domain/paging.ts';
import { createAcpSessions } from '../../src/services/acp-sessions.ts';
import { createAcpSessionStore } from '../../src/store/acp-sessions.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { runWorld, send } from '../support/run-world.ts';

const code = (expected: string) => (error: unknown) => {
  assert.equal((error as { code?: string }).code, expected);
  return true;
};

test('A session is there before anything is said, its conversation begins with the first message, and it is listed by the folder of its client.', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner, db } = world;
  const { runs, conversations } = await world.replica();
  const store = createAcpSessionStore(db);
  const sessions = createAcpSessions({
    agents: createAgentStore(db),
    acpSessions: store,
    conversations,
    cursors: createCursors(Buffer.alloc(32)),
  });
  const page = { limit: 10, cursor: null };
  const { id } = await sessions.create(owner, agentId, { cwd: '/home/me/project' });
  assert.equal((await sessions.get(owner, agentId, id)).lastMessageAt, null);
  assert.deepEqual((await sessions.list(owner, agentId, null, page)).items, []);
  await assert.rejects(sessions.get({ ...owner, orgId: newId() }, agentId, id), code('not_found'));
  await assert.rejects(sessions.get(owner, agentId, newId()), code('not_found'));

  await assert.rejects(runs.send(owner, send('a', { agentId, conversationId: id })), code('not_found'));
  const first = send('the first', { agentId, conversationId: id, mayBegin: true });
  const both = await Promise.all([runs.send(owner, first), runs.send(owner, first)]);
  assert.deepEqual(
    both.map((accepted) => accepted.conversationId),
    [id, id],
  );
  const found = await sessions.get(owner, agentId, id);
  assert.equal(found.title, 'the first');
  const elsewhere = await runs.send(owner, send('by another surface', { agentId }));
  const listed = async (cwd: string | null) =>
    (await sessions.list(owner, agentId, cwd, page)).items.map((one) => one.id);
  assert.deepEqual(await listed('/home/me/project'), [id]);
  assert.deepEqual(await listed('/workspace'), [elsewhere.conversationId]);
  assert.deepEqual(await listed('/elsewhere'), []);
  assert.deepEqual(new Set(await listed(null)), new Set([id, elsewhere.conversationId]));

  const user = { ...owner, scope: 'use' as const };
  await assert.rejects(sessions.remove(user, agentId, id), code('scope_insufficient'));
  await sessions.remove(owner, agentId, id);
  await sessions.remove(owner, agentId, id);
  await assert.rejects(sessions.get(owner, agentId, id), code('not_found'));
  await assert.rejects(runs.send(owner, first), code('not_found'));

  const unused = await sessions.create(user, agentId, { cwd: '/x' });
  await sessions.remove(user, agentId, unused.id);
  await assert.rejects(sessions.get(owner, agentId, unused.id), code('not_found'));
  const old = await sessions.create(owner, agentId, { cwd: '/x' });
  await db.sql`update acp_sessions set created_at = now() - interval '8 days' where id in (${old.id}, ${id})`;
  assert.equal(await sessions.purge(), 1);
});
