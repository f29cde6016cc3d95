import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newKeyValue } from '../../src/domain/api-key-value.ts';
import { DomainError } from '../../src/domain/errors.ts';
import { createResources, resourceWorld } from '../support/resources.ts';
import type { Resources, World } from '../support/resources.ts';

const page = { limit: 100, cursor: null };

let world: World;
let nowMs = Date.now();
let replica: Resources;
before(async () => {
  world = await resourceWorld({ now: () => nowMs });
  replica = createResources(world.db, world.bells, world.repos, () => nowMs);
});
after(async () => {
  await replica.auth.close();
  await world.close();
});

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof DomainError, `a refusal, not ${String(error)}`);
  return `${error.code} ${error.message}`;
}

/** Counts the look-ups of keys while `work` runs. */
async function lookUps(work: () => Promise<unknown>): Promise<number> {
  const { keys } = world.stores;
  const original = keys.findActive;
  let count = 0;
  keys.findActive = (hash) => {
    count += 1;
    return original(hash);
  };
  try {
    await work();
  } finally {
    keys.findActive = original;
  }
  return count;
}

test('a key is told apart from a missing one, and a malformed one costs no look-up', async () => {
  assert.match(await refusal(world.auth.authenticate(null)), /^key_missing/);
  assert.match(await refusal(world.auth.authenticate('')), /^key_missing/);
  const { value } = newKeyValue();
  const count = await lookUps(async () => {
    for (const text of ['x', 'svc_live_', value.slice(0, -1), `${value.slice(0, -1)}!`, `${value} `]) {
      assert.match(await refusal(world.auth.authenticate(text)), /^key_invalid/);
    }
  });
  assert.equal(count, 0);
});

test('an unknown, an expired and a revoked key get the same answer', async () => {
  const { apiKeys, owner } = world;
  const revoked = await world.caller('use', 'org-bound');
  await apiKeys.revoke(owner, revoked.keyId);
  const expired = await apiKeys.mint(owner, {
    name: 'short',
    scope: 'use',
    binding: 'org-bound',
    expiresAt: new Date(Date.now() + 60_000),
  });
  await world.auth.authenticate(expired.value);
  nowMs = expired.key.expiresAt!.getTime();
  const answers = new Set<string>();
  for (const value of [newKeyValue().value, revoked.value, expired.value]) {
    answers.add(await refusal(world.auth.authenticate(value)));
  }
  assert.equal(answers.size, 1);
});

test('a caller has the rights of its key and the default rate limit', async () => {
  const agent = await world.agents.create(world.owner, { name: 'A' });
  const { value, ...principal } = await world.caller('edit', 'agent-bound', agent);
  const caller = await world.auth.authenticate(value);
  assert.deepEqual(caller, { ...principal, rateLimit: { quota: 600, windowSeconds: 60 } });
});

test('requests at the same time and in the same second share one look-up, unknown keys too', async () => {
  const { value } = await world.caller('use', 'org-bound');
  const unknown = newKeyValue().value;
  const count = await lookUps(async () => {
    await Promise.all(Array.from({ length: 50 }, () => world.auth.authenticate(value)));
    await world.auth.authenticate(value);
    await Promise.all(Array.from({ length: 50 }, () => refusal(world.auth.authenticate(unknown))));
    await refusal(world.auth.authenticate(unknown));
  });
  assert.equal(count, 2);
});

test('a revoked key stops at once here and, by the doorbell, on another replica', async () => {
  const { value, keyId } = await world.caller('use', 'org-bound');
  await world.auth.authenticate(value);
  await replica.auth.authenticate(value);
  await world.apiKeys.revoke(world.owner, keyId);
  assert.match(await refusal(world.auth.authenticate(value)), /^key_invalid/);
  assert.match(await refusal(replica.auth.authenticate(value)), /^key_invalid/);
});

test('a revoked key stops on another replica after a second when no doorbell rings', async () => {
  const { value, keyId } = await world.caller('use', 'org-bound');
  await replica.auth.authenticate(value);
  world.bells.broken = true;
  await world.apiKeys.revoke(world.owner, keyId);
  world.bells.broken = false;
  nowMs += 1000;
  assert.match(await refusal(replica.auth.authenticate(value)), /^key_invalid/);
});

test('a doorbell that was away makes every key be asked for again', async () => {
  const { value, keyId } = await world.caller('use', 'org-bound');
  await replica.auth.authenticate(value);
  world.bells.broken = true;
  await world.apiKeys.revoke(world.owner, keyId);
  world.bells.broken = false;
  world.bells.reconnect();
  assert.match(await refusal(replica.auth.authenticate(value)), /^key_invalid/);
});

test('a look-up that was under way while its key was revoked is not kept', async () => {
  const { value, keyId } = await world.caller('use', 'org-bound');
  const { keys } = world.stores;
  const original = keys.findActive;
  const read = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  keys.findActive = async (hash) => {
    const found = await original(hash);
    read.resolve();
    await go.promise;
    return found;
  };
  const early = world.auth.authenticate(value);
  await read.promise;
  keys.findActive = original;
  await world.apiKeys.revoke(world.owner, keyId);
  const late = refusal(world.auth.authenticate(value));
  go.resolve();
  await early;
  assert.match(await late, /^key_invalid/);
  assert.match(await refusal(world.auth.authenticate(value)), /^key_invalid/);
});

test('deleting an agent ends its keys at once', async () => {
  const agent = await world.agents.create(world.owner, { name: 'Short-lived' });
  const { value } = await world.caller('edit', 'agent-bound', agent);
  await world.auth.authenticate(value);
  await replica.auth.authenticate(value);
  await world.agents.remove(world.owner, agent.id);
  assert.match(await refusal(world.auth.authenticate(value)), /^key_invalid/);
  assert.match(await refusal(replica.auth.authenticate(value)), /^key_invalid/);
});

test('the last use is written once a minute for a key, however often it is used and on how many replicas', async () => {
  const { value, keyId } = await world.caller('use', 'org-bound');
  const lastUsed = async () =>
    (await world.apiKeys.list(world.owner, page)).items.find((key) => key.id === keyId)?.lastUsedAt ?? null;
  const useEverywhere = async () => {
    await Promise.all([world.auth.authenticate(value), world.auth.authenticate(value)]);
    await replica.auth.authenticate(value);
    await world.auth.close();
    await replica.auth.close();
  };
  assert.equal(await lastUsed(), null);
  const firstMs = nowMs;
  await useEverywhere();
  assert.equal((await lastUsed())?.getTime(), firstMs);
  nowMs += 59_000;
  await useEverywhere();
  assert.equal((await lastUsed())?.getTime(), firstMs);
  nowMs += 1000;
  await useEverywhere();
  assert.equal((await lastUsed())?.getTime(), firstMs + 60_000);
});

test('a refused minting names the field that is wrong', async () => {
  const agent = await world.agents.create(world.owner, { name: 'A' });
  const mint = (input: object) =>
    refusal(world.apiKeys.mint(world.owner, { name: 'k', scope: 'use', binding: 'agent-bound', ...input }));
  assert.match(await mint({}), /^invalid_request agentId/);
  assert.match(await mint({ agentId: world.foreign.agent.id }), /^not_found/);
  assert.match(await mint({ binding: 'org-bound', agentId: agent.id }), /^invalid_request agentId/);
  assert.match(
    await mint({ agentId: agent.id, expiresAt: new Date(Date.now() - 1) }),
    /^invalid_request expiresAt/,
  );
  assert.match(await mint({ agentId: agent.id, name: ' ' }), /^invalid_request name/);
  assert.match(await mint({ agentId: agent.id, name: 'a\u0000' }), /^invalid_request name/);
});

test('a key is revoked once, and only by whom it belongs to', async () => {
  const agent = await world.agents.create(world.owner, { name: 'A' });
  const other = await world.agents.create(world.owner, { name: 'B' });
  const { keyId } = await world.caller('use', 'agent-bound', agent);
  const { apiKeys, owner, foreign } = world;
  assert.match(await refusal(apiKeys.revokeForAgent(owner, other.id, keyId)), /^not_found/);
  assert.match(await refusal(apiKeys.revoke(foreign.owner, keyId)), /^not_found/);
  assert.match(await refusal(apiKeys.revoke(owner, 'no-id')), /^not_found/);
  await apiKeys.revokeForAgent(owner, agent.id, keyId);
  assert.match(await refusal(apiKeys.revokeForAgent(owner, agent.id, keyId)), /^not_found/);
});

test('only active keys are listed', async () => {
  const agent = await world.agents.create(world.owner, { name: 'A' });
  const kept = await world.caller('use', 'agent-bound', agent);
  const revoked = await world.caller('use', 'agent-bound', agent);
  await world.apiKeys.revokeForAgent(world.owner, agent.id, revoked.keyId);
  const expired = await world.apiKeys.mintForAgent(world.owner, agent.id, { name: 'old' });
  await world.db.sql`update api_keys set expires_at = now() where id = ${expired.key.id}`;
  const { items } = await world.apiKeys.listForAgent(world.owner, agent.id, page);
  assert.deepEqual(
    items.map((key) => key.id),
    [kept.keyId],
  );
});
