import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { EdgeWorld, Reply } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';
import { nowhere } from '../support/webhook-endpoint.ts';

let world: EdgeWorld;
before(async () => void (world = await edgeWorld()));
after(() => world.close());

/** A POST that can be sent again as it was. */
function sender(path: string, body: unknown): () => Promise<Reply> {
  const idempotencyKey = newId();
  return () => world.call('POST', path, { body, headers: { 'idempotency-key': idempotencyKey } });
}

/** The first answer, which a second try gets too as long as its secret is one. */
async function shownTwice<T>(send: () => Promise<Reply>, status: number): Promise<T> {
  const first = await send();
  assert.equal(first.status, status, first.text);
  const again = await send();
  assert.equal(again.text, first.text);
  assert.equal(again.headers.get('idempotent-replayed'), 'true');
  return first.json as T;
}

async function withdrawn(send: () => Promise<Reply>, secret: string): Promise<void> {
  const reply = await send();
  assert.deepEqual([reply.status, (reply.json as { code: string }).code], [410, 'secret_withdrawn']);
  assert.match((reply.json as { error: string }).error, /revoked, replaced or deleted.*Use a new key/);
  assert.ok(!reply.text.includes(secret));
}

/** How many stored answers of this owner still hold anything. */
async function kept(owner: string): Promise<number> {
  const rows = await world.resources.db.sql`
    select from idempotency where secret_of = ${owner} and (sealed_body is not null or wrapped_key is not null)`;
  return rows.length;
}

const gone = async (path: string) => assert.equal((await world.call('DELETE', path)).status, 204);

interface Minted {
  key: { id: string };
  value: string;
}

test('the answer with a key value is given again until the key is revoked, has expired or its agent is deleted', async () => {
  const { db } = world.resources;
  const made = await world.call('POST', '/v1/agents', { body: { name: 'Brief' } });
  const agentId = (made.json as { agent: { id: string } }).agent.id;
  const ofAgent = `/v1/agents/${agentId}/api-keys`;

  const revoked = sender(ofAgent, { name: 'revoked' });
  const first = await shownTwice<Minted>(revoked, 201);
  assert.equal(await kept(first.key.id), 1);
  await gone(`${ofAgent}/${first.key.id}`);
  assert.equal(await kept(first.key.id), 0);
  await withdrawn(revoked, first.value);

  const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
  const expiring = sender('/v1/api-keys', { name: 'brief', scope: 'use', binding: 'org-bound', expiresAt });
  const second = await shownTwice<Minted>(expiring, 201);
  await db.sql`update api_keys set expires_at = now() - interval '1 second' where id = ${second.key.id}`;
  await withdrawn(expiring, second.value);

  const lost = sender(ofAgent, { name: 'lost with its agent' });
  const third = await shownTwice<Minted>(lost, 201);
  await gone(`/v1/agents/${agentId}`);
  assert.equal(await kept(third.key.id), 0);
  const reply = await lost();
  assert.equal(reply.status, 410);
  assert.ok(!reply.text.includes(third.value));
});

test('the answer with the secret of a webhook endpoint is given again until that is rotated, or the endpoint deleted', async () => {
  type Shown = { endpoint: { id: string }; secret: string };
  const create = sender('/v1/webhook-endpoints', { url: nowhere, events: ['run.completed'] });
  const { endpoint, secret } = await shownTwice<Shown>(create, 201);
  const path = `/v1/webhook-endpoints/${endpoint.id}`;
  await rewrapped('webhook_endpoint_secrets', 'endpoint_id', endpoint.id);
  await shownTwice(create, 201);
  const rotate = sender(`${path}/rotate-secret`, {});
  const rotated = await shownTwice<Shown>(rotate, 200);
  await withdrawn(create, secret);
  assert.equal((await sender(`${path}/rotate-secret`, {})()).status, 200);
  await withdrawn(rotate, rotated.secret);
  const last = sender(`${path}/rotate-secret`, {});
  const third = await shownTwice<Shown>(last, 200);
  await gone(path);
  assert.equal(await kept(endpoint.id), 0);
  await withdrawn(last, third.secret);
});

test('the answer with the secret of a channel is given again until that is rotated, or the channel deleted', async () => {
  type Shown = { channel: { id: string }; secret: string };
  const create = sender(`/v1/agents/${world.agent.id}/channels`, { kind: 'generic' });
  const { channel, secret } = await shownTwice<Shown>(create, 201);
  assert.ok(secret);
  await rewrapped('channel_credentials', 'channel_id', channel.id);
  await shownTwice(create, 201);
  const rotate = sender(`/v1/channels/${channel.id}/rotate-secret`, {});
  const rotated = await shownTwice<Shown>(rotate, 200);
  await withdrawn(create, secret);
  await gone(`/v1/channels/${channel.id}`);
  assert.equal(await kept(channel.id), 0);
  await withdrawn(rotate, rotated.secret);
});

/** As the rotation of the key-encryption key writes it: the secret stays what it was. */
async function rewrapped(table: string, column: string, id: string): Promise<void> {
  const { sql } = world.resources.db;
  const changed = await sql`update ${sql(table)} set kek_id = kek_id || '' where ${sql(column)} = ${id}`;
  assert.ok(changed.count > 0);
}
