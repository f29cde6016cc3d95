import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConversationEvent } from '../../src/domain/events.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Principal } from '../../src/domain/nouns.ts';
import { createApiKeyStore } from '../../src/store/api-keys.ts';
import { runWorld, send, type Replica, type RunWorld } from '../support/run-world.ts';
import { until } from '../support/until.ts';

async function keyOf(world: RunWorld): Promise<Principal> {
  const id = newId();
  const { orgId } = world.owner;
  const place = { orgId, agentId: null, binding: 'org-bound' as const };
  const text = { name: 'k', prefix: 'svc_live_000000', hash: id };
  await createApiKeyStore(world.db).insert({ id, ...place, ...text, scope: 'use', expiresAt: null });
  return { keyId: id, ...place, scope: 'use' };
}

async function followed(replica: Replica, p: Principal, conversationId: string) {
  const seen: ConversationEvent[] = [];
  let isEnded = false;
  await replica.events.follow(p, { conversationId }, 0, {
    write: (events) => (seen.push(...events), true),
    drained: () => Promise.resolve(),
    end: () => (isEnded = true),
  });
  await until('the past is there', () => seen.length >= 4);
  return { seen, isEnded: () => isEnded };
}

async function world(t: { after(close: () => Promise<void>): void }) {
  const made = await runWorld();
  t.after(() => made.close());
  const replica = await made.replica();
  const { conversationId, runId } = await replica.runs.send(
    made.owner,
    send('one', { agentId: made.agentId }),
  );
  await replica.runs.outcome(made.owner, runId, 60_000);
  return { made, replica, conversationId };
}

test('a stream ends within about a second when its key is revoked elsewhere, and those of other keys go on', async (t) => {
  const { made, replica, conversationId } = await world(t);
  const revoked = await keyOf(made);
  const expiring = await keyOf(made);
  const streams = {
    revoked: await followed(replica, revoked, conversationId),
    expiring: await followed(replica, expiring, conversationId),
    other: await followed(replica, await keyOf(made), conversationId),
  };
  await made.db.sql`update api_keys set revoked_at = now() where id = ${revoked.keyId}`;
  await made.db.sql`update api_keys set expires_at = now() where id = ${expiring.keyId}`;
  await until('both have ended', () => streams.revoked.isEnded() && streams.expiring.isEnded());
  const before = streams.revoked.seen.length;
  const { runId } = await replica.runs.send(
    made.owner,
    send('two', { agentId: made.agentId, conversationId }),
  );
  await replica.runs.outcome(made.owner, runId, 60_000);
  await until('the other one hears of it', () => streams.other.seen.length > before);
  assert.equal(streams.revoked.seen.length, before);
  assert.equal(streams.other.isEnded(), false);
});

test('a stream ends when its conversation or its agent is deleted', async (t) => {
  const { made, replica, conversationId } = await world(t);
  const ofConversation = await followed(replica, made.owner, conversationId);
  await replica.conversations.remove(made.owner, conversationId);
  await until('it has ended', ofConversation.isEnded);

  const sent = await replica.runs.send(made.owner, send('x', { agentId: made.agentId }));
  await replica.runs.outcome(made.owner, sent.runId, 60_000);
  const ofAgent = await followed(replica, made.owner, sent.conversationId);
  await made.db.sql`update agents set deleted_at = now() where id = ${made.agentId}`;
  await until('it has ended', ofAgent.isEnded);
});
