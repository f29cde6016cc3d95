import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { DomainError } from '../../src/domain/errors.ts';
import { newId } from '../../src/domain/ids.ts';
import { limits } from '../../src/domain/limits.ts';
import type { Log } from '../../src/domain/log.ts';
import type { Principal } from '../../src/domain/nouns.ts';
import { retryDelay, retryDelaysMs } from '../../src/domain/webhook-endpoint.ts';
import type { EndpointInput } from '../../src/services/webhook-endpoints-api.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { createOrgStore } from '../../src/store/orgs.ts';
import { silentLog } from '../support/log.ts';
import { runWorld, send, type Replica, type RunWorld } from '../support/run-world.ts';
import { until } from '../support/until.ts';
import { receiver, webhookParts, type Answer, type Received } from './world.ts';

let world: RunWorld;
let replica: Replica;
let parts: ReturnType<typeof webhookParts>;
const warned: Record<string, unknown>[] = [];

before(async () => {
  world = await runWorld();
  replica = await world.replica({
    script: async (turn) => {
      if (turn.content === 'fail') return { outcome: 'failed', code: 'model_error', message: 'It broke.' };
      turn.onUpdate({ kind: 'text', text: 'the answer' });
      return { outcome: 'completed' };
    },
  });
  const log: Log = {
    ...silentLog,
    warn: (_text, fields) => void warned.push(fields ?? {}),
    child: () => log,
  };
  parts = webhookParts(replica, log);
  parts.worker.start();
});
after(async () => {
  await parts.close();
  await world.close();
});

const page = { limit: 100, cursor: null };

/** A receiver and an endpoint for it; both go with the test. */
async function told(
  t: TestContext,
  input: Partial<EndpointInput> = {},
  answer?: (request: Received) => Answer,
  p: Principal = world.owner,
) {
  const hook = await receiver(answer);
  const made = await parts.service.create(p, { url: hook.url, events: ['*'], ...input });
  const { id } = made.endpoint;
  t.after(async () => {
    await parts.service.remove(p, id).catch(() => undefined);
    await hook.close();
  });
  return {
    ...hook,
    id,
    secret: made.secret,
    get: () => parts.service.get(p, id),
    deliveries: async () => (await parts.service.deliveries(p, id, page, null)).items.reverse(),
    attempts: async (deliveryId: string) => (await parts.service.delivery(p, id, deliveryId)).attempts,
  };
}

async function run(content = 'hello', agentId = world.agentId, p = world.owner) {
  const accepted = await replica.runs.send(p, send(content, { agentId }));
  const { run: ended } = await replica.runs.outcome(p, accepted.runId, 30_000);
  return { ...accepted, status: ended.status };
}

/** Makes what waits for its next attempt due, as if the time had passed. */
async function skipWait(endpointId: string): Promise<void> {
  await world.db.sql`
    update webhook_deliveries set due_at = now() where endpoint_id = ${endpointId} and leased_until is null
      and due_at is not null`;
}

/** Another organisation with an agent of its own. */
async function otherOrg(): Promise<{ p: Principal; agentId: string }> {
  const orgId = newId();
  await createOrgStore(world.db).insert({ id: orgId, name: 'Theirs' });
  const agentId = newId();
  await createAgentStore(world.db).insert({
    id: agentId,
    orgId,
    name: 'B',
    description: '',
    model: 'demo/guide',
    externalGitUrl: null,
  });
  return { p: { keyId: newId(), orgId, scope: 'edit', binding: 'org-bound', agentId: null }, agentId };
}

test('an endpoint is told of each event that it asked for, signed as Standard Webhooks, with ids and states only', async (t) => {
  const all = await told(t);
  const ends = await told(t, { events: ['run.completed', 'run.failed'] });
  const { conversationId, runId } = await run('my secret words');
  await until('the end was told', () => all.of('run.completed').length && ends.received.length);
  const log = await world.log(conversationId);
  await until('all was told', () => all.received.length === 3);
  for (const type of ['run.queued', 'run.started', 'run.completed']) {
    const [one] = all.of(type);
    assert.ok(one, type);
    const { seq } = log.find((event) => event.type === type)!;
    assert.equal(one.event.data.seq, seq);
    assert.deepEqual(
      [one.event.data.agentId, one.event.data.conversationId, one.event.data.runId],
      [world.agentId, conversationId, runId],
    );
    const headers = one.headers as Record<string, string>;
    assert.deepEqual(new Webhook(all.secret).verify(one.body, headers), one.event);
    assert.throws(() => new Webhook(ends.secret).verify(one.body, headers));
  }
  const [end] = ends.received;
  assert.deepEqual(Object.keys(end!.event.data).sort(), [
    'agentId',
    'conversationId',
    'messageId',
    'runId',
    'seq',
    'status',
  ]);
  assert.equal(end!.event.data.status, 'completed');
  assert.doesNotMatch(all.received.map(({ body }) => body).join(), /secret words|the answer/);
  assert.equal(new Set(all.received.map(({ headers }) => headers['webhook-id'])).size, 3);
});

test('only events of its agent, only of its organisation, and nothing of a copied conversation', async (t) => {
  const agentId = await world.addAgent();
  const one = await told(t, { agentId, events: ['run.completed'] });
  const theirs = await otherOrg();
  const other = await told(t, {}, undefined, theirs.p);
  await run('elsewhere');
  const { runId, conversationId } = await run('here', agentId);
  await until('it was told', () => one.received.length === 1);
  assert.equal(one.received[0]!.event.data.runId, runId);
  assert.deepEqual(await other.deliveries(), []);
  const { insertForkedEvents } = await import('../../src/store/forks.ts');
  const events = await world.log(conversationId);
  const copy = newId();
  const { db } = replica;
  await db.tx(async () => {
    await db.sql`
      insert into conversations (id, org_id, agent_id, title, source)
      values (${copy}, ${world.owner.orgId}, ${agentId}, '', 'api')`;
    await insertForkedEvents(
      db,
      copy,
      events.map(({ seq, at, type, data }) => ({ seq, at, runId: newId(), body: { type, data } as never })),
    );
  });
  assert.equal((await one.deliveries()).length, 1);
});

test('a failed run is told by the code of its error', async (t) => {
  const { received } = await told(t, { events: ['run.failed'] });
  const { status } = await run('fail');
  assert.equal(status, 'failed');
  await until('it was told', () => received.length === 1);
  const { data } = received[0]!.event;
  assert.equal(data.status, 'failed');
  assert.deepEqual(Object.keys(data.error), ['code']);
});

test('what is not taken is sent again under the same id, and each attempt is in the log with what was answered', async (t) => {
  let tries = 0;
  const hook = await told(t, { events: ['run.completed'] }, () => {
    tries += 1;
    if (tries === 1) return { status: 503, body: `busy\u0000${'x'.repeat(5_000)}` };
    return tries === 2 ? { status: 302, headers: { location: hook.url } } : { status: 204 };
  });
  await run();
  await until('it was taken', async () => {
    await skipWait(hook.id);
    return (await hook.deliveries())[0]!.state === 'delivered';
  });
  const [delivery] = await hook.deliveries();
  assert.deepEqual([delivery!.attempts, delivery!.dueAt, delivery!.lastError], [3, null, null]);
  assert.deepEqual(
    new Set(hook.received.map(({ headers }) => headers['webhook-id'])),
    new Set([delivery!.id]),
  );
  const attempts = await hook.attempts(delivery!.id);
  assert.deepEqual(
    attempts.map(({ number, status, error }) => [number, status, error]),
    [
      [1, 503, 'The receiver answered 503.'],
      [2, 302, 'The receiver answered 302.'],
      [3, 204, null],
    ],
  );
  assert.equal(attempts[0]!.answer!.length, limits.webhookAnswerBytes);
  assert.match(attempts[0]!.answer!, /^busy\ufffdx/);
  assert.ok(attempts.every(({ latencyMs }) => latencyMs >= 0));
  assert.equal((await hook.get()).failingSince, null);
});

test('attempts end after the last of the schedule; each is spread by a fifth, and later when the receiver asks for it', () => {
  assert.equal(retryDelaysMs.length, 9);
  assert.deepEqual(
    [0, 1].map((random) => retryDelay(1, null, random)),
    [4_000, 6_000],
  );
  assert.equal(retryDelay(1, 3_600_000, 0), 3_600_000);
  assert.equal(retryDelay(1, 10 * 86_400_000, 0), 86_400_000);
  assert.equal(retryDelay(9, null, 0.5), 86_400_000);
  assert.equal(retryDelay(10, null, 0.5), null);
});

test('a delivery that no attempt brought has failed; it is sent again when asked for, alone or with all since then', async (t) => {
  let isUp = false;
  const hook = await told(t, { events: ['run.completed'] }, () => (isUp ? 200 : 500));
  await run();
  await run();
  const states = async () => (await hook.deliveries()).map(({ state }) => state);
  await until('both have failed', async () => {
    // As if all attempts but the last had been made.
    await world.db.sql`
      update webhook_deliveries set attempts = ${retryDelaysMs.length}, due_at = now()
      where endpoint_id = ${hook.id} and leased_until is null and state = 'pending'`;
    return (await states()).join() === 'failed,failed';
  });
  isUp = true;
  const [first] = await hook.deliveries();
  const again = await parts.service.retry(world.owner, hook.id, first!.id);
  assert.equal(again.state, 'pending');
  await until('the first was taken', async () => (await states())[0] === 'delivered');
  assert.equal((await states())[1], 'failed');
  const future = new Date(Date.now() + 60_000);
  assert.equal(await parts.service.retrySince(world.owner, hook.id, future), 0);
  assert.equal(await parts.service.retrySince(world.owner, hook.id, new Date(0)), 1);
  await until('the second was taken', async () => (await states())[1] === 'delivered');
  const failed = await parts.service.deliveries(world.owner, hook.id, page, 'failed');
  assert.deepEqual(failed.items, []);
});

test('an endpoint that takes nothing for days is disabled, and others are told', async (t) => {
  const hook = await told(t, { events: ['run.completed'] }, () => 500);
  const other = await told(t, { events: ['webhook_endpoint.disabled'] });
  await run();
  await until('it fails', async () => (await hook.get()).failingSince !== null);
  await world.db.sql`
    update webhook_endpoints set failing_since = now() - make_interval(days => ${limits.webhookFailingDays}, mins => 1)
    where id = ${hook.id}`;
  await until('it is disabled', async () => {
    await skipWait(hook.id);
    return (await hook.get()).status === 'disabled';
  });
  assert.equal((await hook.get()).disabledReason, 'failing');
  await until('the other one was told', () => other.received.length === 1);
  assert.deepEqual(other.received[0]!.event.data, { endpointId: hook.id, reason: 'failing' });
});

test('before it is disabled the operator is told once after each of the days for that, and again after a success', async (t) => {
  let isUp = false;
  const hook = await told(t, { events: ['run.completed'] }, () => (isUp ? 200 : 500));
  const said = () => warned.filter(({ endpointId }) => endpointId === hook.id).length;
  const attempts = async () => (await hook.deliveries())[0]?.attempts ?? 0;
  /** Two more attempts, as if it had failed for so long. */
  const failFor = async (days: number) => {
    await world.db.sql`
      update webhook_endpoints set failing_since = now() - make_interval(days => ${days}, mins => 1)
      where id = ${hook.id}`;
    const enough = (await attempts()) + 2;
    await until('it was tried twice', async () => {
      await skipWait(hook.id);
      return (await attempts()) >= enough;
    });
  };
  await run();
  await until('it fails', async () => (await hook.get()).failingSince !== null);
  const [first, second] = limits.webhookWarningDays as [number, number];
  assert.equal(said(), 0);
  await failFor(first);
  assert.equal(said(), 1);
  await failFor(second);
  assert.equal(said(), 2);
  isUp = true;
  await until('it was taken', async () => {
    await skipWait(hook.id);
    return (await hook.deliveries())[0]!.state === 'delivered';
  });
  isUp = false;
  await run();
  await until('it fails again', async () => (await hook.get()).failingSince !== null);
  await world.db.sql`
    update webhook_endpoints set failing_since = now() - make_interval(days => ${first}, mins => 1)
    where id = ${hook.id}`;
  await until('it is said again', async () => {
    await skipWait(hook.id);
    return said() === 3;
  });
});

test('an endpoint that answers 410 is disabled at once', async (t) => {
  const hook = await told(t, { events: ['run.completed'] }, () => 410);
  await run();
  await until('it is disabled', async () => (await hook.get()).status === 'disabled');
  assert.equal((await hook.get()).disabledReason, 'gone');
  assert.equal((await hook.deliveries())[0]!.state, 'failed');
});

test('a disabled endpoint is told of nothing; what was not sent yet is held, and goes out when it is enabled', async (t) => {
  let isUp = false;
  const hook = await told(t, { events: ['run.completed'] }, () => (isUp ? 200 : 500));
  await run();
  await until('it was tried', async () => ((await hook.deliveries())[0]?.attempts ?? 0) > 0);
  await parts.service.disable(world.owner, hook.id);
  await run();
  const [held, ...others] = await hook.deliveries();
  assert.deepEqual([held!.state, held!.dueAt, others.length], ['pending', null, 0]);
  await assert.rejects(parts.service.test(world.owner, hook.id), { code: 'conflict' });
  await assert.rejects(parts.service.retry(world.owner, hook.id, held!.id), { code: 'conflict' });
  isUp = true;
  await parts.service.enable(world.owner, hook.id);
  await until('it was taken', async () => (await hook.deliveries())[0]!.state === 'delivered');
});

test('after a rotation both secrets sign', async (t) => {
  const hook = await told(t, { events: ['run.completed'] });
  const { secret } = await parts.service.rotateSecret(world.owner, hook.id);
  const tested = await parts.service.test(world.owner, hook.id);
  await until('the test event came', () => hook.received.length === 1);
  const { body, headers, event } = hook.received[0]!;
  assert.equal(event.type, 'webhook_endpoint.test');
  assert.equal(headers['webhook-id'], tested.id);
  for (const one of [hook.secret, secret])
    assert.deepEqual(new Webhook(one).verify(body, headers as Record<string, string>), event);
  await world.db.sql`
    update webhook_endpoint_secrets set valid_until = now() - interval '1 second'
    where endpoint_id = ${hook.id} and name = 'previous'`;
  await parts.service.test(world.owner, hook.id);
  await until('another test event came', () => hook.received.length === 2);
  const last = hook.received[1]!;
  assert.throws(() => new Webhook(hook.secret).verify(last.body, last.headers as Record<string, string>));
});

test('a receiver that never answers holds up no other organisation, and gets so many requests at once', async (t) => {
  const theirs = await otherOrg();
  const dead = await told(t, { events: ['run.queued'] }, () => 'silence', theirs.p);
  // A backlog, older than what follows.
  await world.db.sql`
    insert into webhook_deliveries (id, endpoint_id, org_id, type, agent_id, conversation_id, run_id, seq, data, at,
      state, due_at)
    select uuid_v7(), ${dead.id}, ${theirs.p.orgId}, 'run.queued', ${theirs.agentId}, uuid_v7(), uuid_v7(), n, '{}',
      now() - interval '1 hour', 'pending', now() - interval '1 hour' from generate_series(1, 500) n`;
  await until('the dead one is busy', () => dead.open() === limits.webhookRequestsPerEndpoint);
  const alive = await told(t, { events: ['run.completed'] });
  for (let count = 0; count < 5; count += 1) await run();
  await until('all of the other was told', () => alive.received.length === 5);
  assert.equal(dead.mostOpen(), limits.webhookRequestsPerEndpoint);
});

test('two replicas send each delivery once', async (t) => {
  const hook = await told(t, { events: ['run.completed'] });
  const second = webhookParts(replica);
  second.worker.start();
  t.after(() => second.close());
  await Promise.all(Array.from({ length: 20 }, () => run()));
  await until(
    'all were taken',
    async () => (await hook.deliveries()).filter(({ state }) => state === 'delivered').length === 20,
  );
  assert.equal(hook.received.length, 20);
});

test('an attempt that is cut off by the end of the process is made by the next one, under the same id', async (t) => {
  const other = await world.replica({ start: false });
  const dying = webhookParts(other);
  let isSilent = true;
  const hook = await told(t, { events: ['run.completed'] }, () => (isSilent ? 'silence' : 200));
  await parts.worker.stop();
  await run();
  await dying.work.runDue();
  await until('it was asked', () => hook.received.length === 1);
  isSilent = false;
  await dying.close();
  const [delivery] = await hook.deliveries();
  assert.deepEqual([delivery!.state, delivery!.attempts], ['pending', 0]);
  parts.worker.start();
  await until('it was taken', async () => (await hook.deliveries())[0]!.state === 'delivered');
  assert.deepEqual(
    hook.received.map(({ headers }) => headers['webhook-id']),
    [delivery!.id, delivery!.id],
  );
});

test('where the service may not connect to is refused, when the endpoint is made and again when its name has changed', async (t) => {
  const refused = [
    'http://169.254.169.254/latest/meta-data',
    'https://2852039166/',
    'https://0251.0376.0251.0376/',
    'https://[::ffff:169.254.169.254]/',
    'https://[64:ff9b::a9fe:a9fe]/',
    'https://[::1]/',
    'https://10.0.0.1/',
    'https://user:pass@example.com/',
    'ftp://example.com/',
    'http://203.0.114.1/',
    'not a url',
  ];
  for (const url of refused) {
    await assert.rejects(parts.service.create(world.owner, { url, events: ['*'] }), (error: unknown) => {
      assert.ok(error instanceof DomainError, url);
      return error.code === 'invalid_request' && error.message.startsWith('url:');
    });
  }
  const hook = await told(t, { events: ['run.completed'] });
  await world.db.sql`update webhook_endpoints set url = 'https://10.0.0.1/hook' where id = ${hook.id}`;
  await parts.service.test(world.owner, hook.id);
  await until('it was refused', async () => ((await hook.deliveries())[0]?.attempts ?? 0) > 0);
  const [delivery] = await hook.deliveries();
  assert.match(delivery!.lastError!, /private or reserved network/);
  assert.equal(delivery!.lastStatus, null);
});

test('what cannot be is refused, and one organisation has so many endpoints', async () => {
  const { p } = await otherOrg();
  const url = 'https://127.0.0.1:9/hook';
  const bad: [string, Partial<EndpointInput>][] = [
    ['events', { events: [] }],
    ['events', { events: ['run.ended'] }],
    ['agentId', { agentId: world.agentId }],
    ['agentId', { agentId: 'none' }],
    ['name', { name: ' ' }],
  ];
  for (const [field, input] of bad) {
    await assert.rejects(parts.service.create(p, { url, events: ['*'], ...input }), (error: unknown) => {
      assert.ok(error instanceof DomainError);
      return error.code === 'invalid_request' && error.message.startsWith(`${field}:`);
    });
  }
  const all = await Promise.allSettled(
    Array.from({ length: limits.webhookEndpointsPerOrg + 2 }, () =>
      parts.service.create(p, { url, events: ['*'] }),
    ),
  );
  assert.equal(all.filter(({ status }) => status === 'fulfilled').length, limits.webhookEndpointsPerOrg);
  const { items } = await parts.service.list(p, page);
  const [first] = items;
  await assert.rejects(parts.service.get(world.owner, first!.id), { code: 'not_found' });
  await assert.rejects(parts.service.list({ ...p, scope: 'use' }, page), { code: 'scope_insufficient' });
  const bound: Principal = { ...p, binding: 'agent-bound', agentId: world.agentId };
  await assert.rejects(parts.service.get(bound, first!.id), { code: 'binding_insufficient' });
  for (const { id } of items) await parts.service.remove(p, id);
});
