import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { Route } from '../../src/edges/http/route.ts';
import { takesBody } from '../../src/edges/http/route.ts';
import { routes } from '../../src/edges/routes.ts';
import type { CallOptions, EdgeWorld, Reply } from '../support/edge-world.ts';
import { nowhere } from '../support/webhook-endpoint.ts';
import { edgeWorld } from '../support/edge-world.ts';

let world: EdgeWorld;
before(async () => {
  world = await edgeWorld();
  // Every route in every variant is more than a key may ask in a minute.
  await world.resources.db.sql`update api_keys set rate_limit_quota = 100000, rate_limit_window_seconds = 60`;
});
after(() => world.close());

const varying = new Set(['x-request-id', 'date', 'ratelimit']);

/** Everything of an answer that may not differ. */
function bytes(reply: Reply): string {
  const headers = [...reply.headers].filter(([name]) => !varying.has(name));
  return JSON.stringify([reply.status, headers, reply.text]);
}

const resourceRoutes = routes.filter((route) => /^\/v1\/(agents|conversations|runs)\/\{/.test(route.path));

/** A good request, and one for each way in which its input can be bad. */
function variants(route: Route): CallOptions[] {
  if (!takesBody(route)) return [{}];
  return [
    { body: route.bodyExample ?? {} },
    { body: { unknown: 1 } },
    { body: '{broken' },
    { body: 'text', headers: { 'content-type': 'text/plain' } },
    { body: `"${'a'.repeat(1024 * 1024)}"` },
    {
      body: route.bodyExample ?? {},
      headers: {
        get 'idempotency-key'() {
          return newId();
        },
      },
    },
    { body: route.bodyExample ?? {}, headers: { 'idempotency-key': '' } },
  ];
}

async function foreignIds() {
  const { resources, core, keys } = world;
  const agentId = resources.foreign.agent.id;
  const { conversationId, runId } = await core.runs.send(resources.foreign.owner, {
    agentId,
    conversationId: null,
    content: 'theirs',
    onBusy: 'enqueue',
    source: 'api',
    idempotency: null,
  });
  const seen = await world.call('GET', `/v1/runs/${runId}`, { key: keys.foreign });
  assert.equal(seen.status, 200);
  return { agents: agentId, conversations: conversationId, runs: runId };
}

test('404 of a foreign resource is byte for byte that of a missing and of a malformed id, on every route', async () => {
  const foreign = await foreignIds();
  const otherAgent = await world.resources.agents.create(world.resources.owner, { name: 'Other' });
  for (const route of resourceRoutes) {
    const kind = /^\/v1\/(\w+)/.exec(route.path)![1] as keyof typeof foreign;
    const method = route.method.toUpperCase();
    const to = (id: string, rest = newId()) =>
      route.path
        .replace('{key}', 'NAME')
        .replace(/\{\w+\}/, id)
        .replace(/\{\w+\}/g, rest);
    for (const options of variants(route)) {
      const missing = bytes(await world.call(method, to(newId()), options));
      assert.match(missing, /^\[404,/, `${route.id} ${missing}`);
      const same = [
        to(foreign[kind]),
        to('not-an-id'),
        to(foreign[kind], 'not-an-id'),
        to('%00'),
        to(newId().toUpperCase()),
      ];
      for (const path of same) {
        assert.equal(bytes(await world.call(method, path, options)), missing, `${method} ${path}`);
      }
      // An agent-bound key sees no other agent of its own organisation either.
      if (kind === 'agents') {
        const bound = await world.call(method, to(otherAgent.id), { ...options, key: world.keys.edit });
        assert.equal(bytes(bound), missing, `agent-bound ${route.id}`);
      }
    }
    if ('limit' in route.query.shape) {
      const missing = bytes(await world.call(method, `${to(newId())}?limit=0`));
      assert.equal(bytes(await world.call(method, `${to(foreign[kind])}?limit=0`)), missing);
      assert.match(missing, /^\[404,/);
    }
  }
});

test('403 says what is needed and nothing takes effect, with good input and with bad', async () => {
  const { agent, keys, resources } = world;
  const counts = async () => {
    const [row] = await resources.db.sql`
      select (select count(*) from agents where deleted_at is null)::int as agents,
        (select count(*) from api_keys where revoked_at is null)::int as keys,
        (select count(*) from secrets)::int as secrets, (select count(*) from budgets)::int as budgets, (select count(*) from deployments)::int as deployments,
        (select name from agents where id = ${agent.id}) as name`;
    return JSON.stringify(row);
  };
  const sent = await world.call('POST', '/api/v1/chat/send', {
    key: keys.use,
    body: { agentId: agent.id, content: 'hello' },
    headers: { prefer: 'respond-async' },
  });
  const { conversationId } = JSON.parse(sent.text) as { conversationId: string };
  const made = await world.call('POST', `/v1/agents/${agent.id}/channels`, { body: { kind: 'generic' } });
  const { channel } = JSON.parse(made.text) as { channel: { id: string } };
  const hooked = await world.call('POST', '/v1/webhook-endpoints', {
    body: { url: nowhere, events: ['*'] },
  });
  const { endpoint } = JSON.parse(hooked.text) as { endpoint: { id: string } };
  const timed = await world.call('POST', `/v1/agents/${agent.id}/schedules`, {
    body: { cron: '@yearly', content: 'kept' },
  });
  const { schedule } = JSON.parse(timed.text) as { schedule: { id: string } };
  const eventId = newId();
  await resources.db.sql`
    insert into inbound_events (id, channel_id, org_id, agent_id, kind, state, delivery_key, place, history, received_at,
                                last_seen_at)
    values (${eventId}, ${channel.id}, ${agent.orgId}, ${agent.id}, 'generic.ping', 'ignored', 'x', 0, '[]', now(), now())`;
  const byNoun: Record<string, string> = {
    conversations: conversationId,
    channels: channel.id,
    'inbound-events': eventId,
    schedules: schedule.id,
    'webhook-endpoints': endpoint.id,
  };
  const before = await counts();
  for (const route of routes) {
    const method = route.method.toUpperCase();
    const path = route.path
      .replace('{key}', 'NAME')
      .replace(/\{\w+\}/, byNoun[/^\/v1\/([\w-]+)\/\{/.exec(route.path)?.[1] ?? ''] ?? agent.id)
      .replace(/\{\w+\}/g, newId());
    for (const options of variants(route)) {
      if (route.access.endsWith('edit')) {
        const reply = await world.call(method, path, { ...options, key: keys.use });
        assert.equal(reply.status, 403, `${route.id} ${reply.text}`);
        assert.match(reply.text, /"code":"(scope|binding)_insufficient"/);
      }
      if (route.access.startsWith('org-')) {
        const reply = await world.call(method, path, { ...options, key: keys.edit });
        assert.equal(reply.status, 403, `${route.id} ${reply.text}`);
        assert.match(reply.text, /"code":"binding_insufficient"/);
        assert.match(reply.text, /org-bound/);
      }
    }
  }
  assert.equal(await counts(), before);
});
