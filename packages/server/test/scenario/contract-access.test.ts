import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { operations } from '../support/contract.ts';
import type { World } from '../support/scenario-world.ts';
import { channelWithEvent } from '../support/channel-event.ts';
import { madeSchedule } from '../support/schedule.ts';
import { until } from '../support/until.ts';
import { endpointWithDelivery, nowhere } from '../support/webhook-endpoint.ts';
import { endSharedWorld, sharedWorld } from '../support/scenario-world.ts';

after(endSharedWorld);

type Needs = 'use' | 'edit' | 'org-use' | 'org-edit';
type KeyName = 'owner' | 'orgUse' | 'agentEdit' | 'agentUse';

/** API contract, section 2, call by call. A call that is not in it fails the first test below. */
const needs: Record<string, Needs> = {
  quickstartAgents: 'use',
  sendMessage: 'use',
  listAgents: 'use',
  createAgent: 'org-edit',
  getAgent: 'use',
  updateAgent: 'edit',
  deleteAgent: 'org-edit',
  listAgentKeys: 'edit',
  createAgentKey: 'edit',
  revokeAgentKey: 'edit',
  listKeys: 'org-edit',
  createKey: 'org-edit',
  revokeKey: 'org-edit',
  listSecrets: 'edit',
  putSecret: 'edit',
  deleteSecret: 'edit',
  listDeployments: 'use',
  createDeployment: 'edit',
  getDeployment: 'use',
  activateDeployment: 'edit',
  listConversations: 'use',
  getConversation: 'use',
  deleteConversation: 'edit',
  forkConversation: 'use',
  listMessages: 'use',
  listRuns: 'use',
  getRun: 'use',
  cancelRun: 'use',
  respondToRun: 'use',
  listConversationEvents: 'use',
  listRunArtifacts: 'use',
  listRunEvents: 'use',
  listSandboxes: 'use',
  getSandbox: 'use',
  startSandbox: 'edit',
  stopSandbox: 'edit',
  restartSandbox: 'edit',
  killSandbox: 'edit',
  execInSandbox: 'edit',
  getSandboxLogs: 'use',
  openTerminal: 'edit',
  listSnapshots: 'use',
  createSnapshot: 'edit',
  getSnapshot: 'use',
  restoreSnapshot: 'edit',
  deleteSnapshot: 'edit',
  listSandboxFiles: 'use',
  getSandboxFile: 'use',
  putSandboxFile: 'edit',
  deleteSandboxFile: 'edit',
  listChannels: 'edit',
  createChannel: 'edit',
  getChannel: 'edit',
  updateChannel: 'edit',
  deleteChannel: 'edit',
  pauseChannel: 'edit',
  resumeChannel: 'edit',
  rotateChannelSecret: 'edit',
  testChannel: 'edit',
  listSchedules: 'edit',
  createSchedule: 'edit',
  getSchedule: 'edit',
  updateSchedule: 'edit',
  deleteSchedule: 'edit',
  pauseSchedule: 'edit',
  resumeSchedule: 'edit',
  runSchedule: 'edit',
  listScheduleTicks: 'edit',
  listWebhookEndpoints: 'org-edit',
  createWebhookEndpoint: 'org-edit',
  getWebhookEndpoint: 'org-edit',
  updateWebhookEndpoint: 'org-edit',
  deleteWebhookEndpoint: 'org-edit',
  enableWebhookEndpoint: 'org-edit',
  disableWebhookEndpoint: 'org-edit',
  rotateWebhookEndpointSecret: 'org-edit',
  testWebhookEndpoint: 'org-edit',
  listWebhookDeliveries: 'org-edit',
  getWebhookDelivery: 'org-edit',
  retryWebhookDelivery: 'org-edit',
  retryWebhookDeliveries: 'org-edit',
  listInboundEvents: 'use',
  getInboundEvent: 'use',
  replayInboundEvent: 'edit',
  replayInboundEvents: 'edit',
  getEgress: 'use',
  putEgress: 'edit',
  deleteEgress: 'edit',
  listEgressRefusals: 'use',
  getEgressTraffic: 'use',
  getBudget: 'org-use',
  putBudget: 'org-edit',
  deleteBudget: 'org-edit',
  getAgentBudget: 'use',
  putAgentBudget: 'edit',
  deleteAgentBudget: 'edit',
  getLimits: 'use',
};

/** The code that a key gets for a call, or null when it may make it. */
function refusalOf(key: KeyName, need: Needs): string | null {
  const isEdit = key === 'owner' || key === 'agentEdit';
  const isOrg = key === 'owner' || key === 'orgUse';
  if (need.endsWith('edit') && !isEdit) return 'scope_insufficient';
  if (need.startsWith('org-') && !isOrg) return 'binding_insufficient';
  return null;
}

interface Request {
  method: string;
  path: string;
  body?: unknown;
}

/** A good request for each call, about things of the agent that all four keys see. */
async function requestsFor(world: World, agentId: string): Promise<Record<string, Request>> {
  const { call } = world;
  const sent = await world.send('the first words', { agentId });
  assert.equal(sent.status, 200, sent.text);
  const { conversationId, runId } = sent.body;
  const agentKey = await call('POST', `/v1/agents/${agentId}/api-keys`, { name: 'bound' });
  const orgKey = await call('POST', '/v1/api-keys', { name: 'org', scope: 'use', binding: 'org-bound' });
  await call('PUT', `/v1/agents/${agentId}/secrets/TOKEN`, { value: 'to be kept' });
  await call('PUT', `/sandbox/${agentId}/files/kept/file`, 'content');
  const snapshot = await call('POST', `/sandbox/${agentId}/snapshots`, { name: 'kept' });
  assert.ok(snapshot.status < 300, snapshot.text);
  const deployments = await call('GET', `/v1/agents/${agentId}/deployments`);
  const deploymentId = deployments.body.deployments[0].id as string;
  const ids: Record<string, string> = {
    agentId,
    conversationId,
    runId,
    deploymentId,
    key: 'TOKEN',
    path: 'kept/file',
    snapshotId: snapshot.body.snapshot.id,
    ...(await channelWithEvent(call, world.service.url, agentId)),
    scheduleId: await madeSchedule(call, agentId),
    ...(await endpointWithDelivery(call)),
  };
  ids['keyId'] = agentKey.body.key.id;
  const bodies: Record<string, unknown> = {
    sendMessage: { agentId, content: 'more words' },
    createAgent: { name: 'Made' },
    updateAgent: { description: 'changed' },
    createAgentKey: { name: 'minted' },
    createKey: { name: 'minted', scope: 'edit', binding: 'org-bound' },
    putSecret: { value: 'replaced' },
    putBudget: { period: 'month', limit: '1000' },
    putAgentBudget: { period: 'day', limit: '100' },
    createDeployment: {},
    putSandboxFile: 'replaced',
    createSnapshot: { name: 'another' },
    restoreSnapshot: {},
    createChannel: { kind: 'generic' },
    updateChannel: { name: 'changed' },
    rotateChannelSecret: {},
    testChannel: {},
    replayInboundEvents: { since: '2026-01-01T00:00:00Z' },
    createWebhookEndpoint: { url: nowhere, events: ['run.failed'] },
    updateWebhookEndpoint: { name: 'changed' },
    retryWebhookDeliveries: { since: '2026-11-28T00:00:00Z' },
    createSchedule: { cron: '@yearly', content: 'made' },
    updateSchedule: { name: 'changed' },
    execInSandbox: { command: ['true'] },
    putEgress: { mode: 'none' },
    respondToRun: { requestId: 'none', optionId: 'none' },
  };
  return Object.fromEntries(
    operations.map(({ method, template, operation }) => {
      const id = operation.operationId;
      const own = /^\/v1\/(agents|conversations|runs|api-keys)\/\{id\}/.exec(template)?.[1] ?? '';
      const byNoun: Record<string, string> = {
        agents: agentId,
        conversations: conversationId,
        runs: runId,
        'api-keys': orgKey.body.key.id,
      };
      const path = template.replace(/\{(\w+)\}/g, (_, name: string) =>
        name === 'id' ? byNoun[own]! : ids[name]!,
      );
      const request: Request = { method, path };
      if (bodies[id] !== undefined) request.body = bodies[id];
      return [id, request];
    }),
  );
}

/** What a request could change; the time of a key's last use is no effect of its own. */
async function state(world: World): Promise<string> {
  const tables = [
    'agents',
    'secrets',
    'earlier_secret_values',
    'deployments',
    'conversations',
    'runs',
    'messages',
    'events',
    'lanes',
    'budgets',
    'snapshots',
    'channels',
    'channel_credentials',
    'inbound_events',
    'schedules',
    'schedule_ticks',
    'webhook_endpoints',
    'webhook_endpoint_secrets',
  ];
  const texts: string[] = [];
  for (const table of tables) {
    const rows = await world.db.sql.unsafe<{ row: string }[]>(`select t::text as row from ${table} t`);
    texts.push(table, ...rows.map(({ row }) => row).sort());
  }
  const keys = await world.db.sql<{ id: string }[]>`select id, revoked_at from api_keys order by id`;
  return [...texts, JSON.stringify(keys)].join('\n');
}

test('each call of openapi.json has its row in the table of what a key may do', () => {
  assert.deepEqual(
    operations.map(({ operation }) => operation.operationId).sort(),
    Object.keys(needs).sort(),
  );
});

test('403: a key beyond its scope or binding is told what is needed, on every call, and nothing takes effect', async () => {
  const world = await sharedWorld();
  const requests = await requestsFor(world, world.agentId);
  const before = await state(world);
  const refused: string[] = [];
  for (const [id, { method, path, body }] of Object.entries(requests)) {
    for (const key of ['owner', 'orgUse', 'agentEdit', 'agentUse'] as const) {
      const code = refusalOf(key, needs[id]!);
      if (code === null) continue;
      const bodies = body === undefined ? [undefined] : [body, '{broken', { unknown: 1 }];
      for (const one of bodies) {
        const headers: Record<string, string> = method === 'POST' ? { 'idempotency-key': newId() } : {};
        const reply = await world.as(world.keys[key])(method, path, one, headers);
        assert.equal(reply.status, 403, `${key} ${id}: ${reply.text}`);
        assert.equal(reply.body.code, code, `${key} ${id}`);
        const needed = code === 'scope_insufficient' ? /"edit"/ : /org-bound/;
        assert.match(reply.body.error, needed, `${key} ${id}`);
        refused.push(`${key} ${id}`);
      }
    }
  }
  assert.equal(await state(world), before);
  assert.ok(new Set(refused).size >= 30, `${new Set(refused).size} refusals were tried`);
});

test('2xx: a key makes every call that its scope and binding allow', async () => {
  const world = await sharedWorld();
  // Last what would take the ground from under the others.
  const late = [
    'deleteConversation',
    'deleteSecret',
    'deleteSnapshot',
    'deleteChannel',
    'deleteSchedule',
    'disableWebhookEndpoint',
    'enableWebhookEndpoint',
    'deleteWebhookEndpoint',
    'revokeAgentKey',
    'revokeKey',
    'deleteAgent',
  ];
  for (const key of ['agentUse', 'agentEdit', 'orgUse', 'owner'] as const) {
    const made = await world.call('POST', '/v1/agents', { name: `For ${key}` });
    const agentId = made.body.agent.id as string;
    const binding = key.startsWith('org') || key === 'owner' ? 'org-bound' : 'agent-bound';
    const value = await world.mint({
      scope: key === 'owner' || key === 'agentEdit' ? 'edit' : 'use',
      binding,
      agentId: binding === 'agent-bound' ? agentId : null,
    });
    const requests = await requestsFor(world, agentId);
    const order = Object.keys(requests).sort((a, b) => late.indexOf(a) - late.indexOf(b));
    for (const id of order) {
      if (refusalOf(key, needs[id]!) !== null) continue;
      const { method, path, body } = requests[id]!;
      let reply = await world.as(value)(method, path, body);
      // The service may be at its own next attempt just then, which ends at once.
      if (id === 'retryWebhookDelivery')
        await until('no other attempt is under way', async () => {
          if (reply.status === 409) reply = await world.as(value)(method, path, body);
          return reply.status !== 409;
        });
      // Two that a run which has ended refuses, whoever asks, and one that is no plain request.
      const fits = ['cancelRun', 'respondToRun', 'openTerminal'].includes(id)
        ? [400, 409].includes(reply.status)
        : reply.status < 300;
      assert.ok(fits, `${key} ${id}: ${reply.status} ${reply.text}`);
    }
  }
});

test('an agent-bound key sees its own agent only, in both lists', async () => {
  const world = await sharedWorld();
  for (const key of [world.keys.agentUse, world.keys.agentEdit]) {
    const list = await world.as(key)('GET', '/v1/agents');
    assert.deepEqual(
      list.body.agents.map((agent: { id: string }) => agent.id),
      [world.agentId],
    );
    const bare = await world.as(key)('GET', '/api/v2/agents');
    assert.deepEqual(
      bare.body.map((agent: { id: string }) => agent.id),
      [world.agentId],
    );
  }
});

test('a key minted for an agent is agent-bound with the scope use, whatever mints it, and takes no other wish', async () => {
  const world = await sharedWorld();
  for (const key of [world.keys.owner, world.keys.agentEdit]) {
    const minted = await world.as(key)('POST', `/v1/agents/${world.agentId}/api-keys`, { name: 'x' });
    assert.equal(minted.status, 201);
    const { scope, binding, agentId } = minted.body.key;
    assert.deepEqual(
      { scope, binding, agentId },
      { scope: 'use', binding: 'agent-bound', agentId: world.agentId },
    );
    assert.match(minted.body.value, /^svc_live_[0-9A-Za-z]{49}$/);
    assert.equal(minted.body.key.prefix, minted.body.value.slice(0, 15));
    const limits = await world.as(minted.body.value)('GET', '/v1/limits');
    assert.equal(limits.body.key.scope, 'use');
  }
  for (const wish of [{ scope: 'edit' }, { binding: 'org-bound' }, { agentId: world.otherAgentId }]) {
    const refused = await world.call('POST', `/v1/agents/${world.agentId}/api-keys`, { name: 'x', ...wish });
    assert.deepEqual([refused.status, refused.body.code], [400, 'invalid_request']);
  }
});

test('401: a missing, malformed, unknown, mistyped, expired or revoked key is answered with its code and a challenge', async () => {
  const world = await sharedWorld();
  const { service } = world;
  const expiring = await world.mint({ expiresAt: new Date(Date.now() + 500) });
  const minted = await world.call('POST', `/v1/agents/${world.agentId}/api-keys`, { name: 'gone' });
  const revoked = minted.body.value as string;
  assert.equal((await world.as(revoked)('GET', '/v1/limits')).status, 200);
  const path = `/v1/agents/${world.agentId}/api-keys/${minted.body.key.id}`;
  assert.equal((await world.call('DELETE', path)).status, 204);
  const endMs = Date.now() + 1_000;
  while ((await service.as(revoked)('GET', '/v1/limits')).status !== 401) {
    assert.ok(Date.now() < endMs, 'a revoked key still works after a second');
  }
  while ((await service.as(expiring)('GET', '/v1/limits')).status !== 401) {
    assert.ok(Date.now() < endMs + 2_000, 'an expired key still works');
  }
  const mistyped = `${service.key.slice(0, -1)}${service.key.endsWith('a') ? 'b' : 'a'}`;
  const cases: [authorization: string, code: string][] = [
    ['', 'key_missing'],
    ['Bearer', 'key_missing'],
    ['Basic dXNlcjpwYXNz', 'key_invalid'],
    ['Bearer svc_live_short', 'key_invalid'],
    ['Bearer sk-something-else', 'key_invalid'],
    [`Bearer ${mistyped}`, 'key_invalid'],
    [`Bearer ${revoked}`, 'key_invalid'],
    [`Bearer ${expiring}`, 'key_invalid'],
  ];
  for (const [authorization, code] of cases) {
    for (const request of ['GET /v1/agents', `POST /v1/agents`, 'POST /api/v1/chat/send']) {
      const [method, path] = request.split(' ') as [string, string];
      const body = method === 'POST' ? { name: 'x' } : undefined;
      const reply = await world.call(method, path, body, { authorization });
      assert.deepEqual([reply.status, reply.body.code], [401, code], `${authorization} ${request}`);
      assert.match(reply.headers.get('www-authenticate') ?? '', /^Bearer /);
      assert.ok(
        !reply.text.includes(authorization.slice(8)) || authorization.length < 9,
        'the key is repeated',
      );
    }
  }
});
