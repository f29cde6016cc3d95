import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openServiceDatabase } from '../support/scenario-world.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { receiver } from '../webhooks/world.ts';

const schedules = 8;

test('a service that is killed while it fires schedules and tells of their runs fires each tick once and tells of each run', async (t) => {
  const service = await startService({
    env: { BERTH_ALLOW_PRIVATE_NETWORKS: '127.0.0.0/8', BERTH_LEASE_SECONDS: '2' },
  });
  t.after(() => service.end());
  const { api } = service;
  let isDead = false;
  // From the first event on until it is killed, nobody answers: those deliveries are under way when it dies.
  const hook = await receiver(() => (isDead ? 200 : 'silence'));
  t.after(() => hook.close());
  const made = await api('POST', '/v1/webhook-endpoints', { url: hook.url, events: ['run.completed'] });
  assert.equal(made.status, 201, made.text);
  const endpointId = made.body.endpoint.id as string;
  const agentId = (await api('GET', '/v1/agents')).body.agents[0].id as string;
  const ids: string[] = [];
  for (let count = 0; count < schedules; count += 1) {
    const one = await api('POST', `/v1/agents/${agentId}/schedules`, {
      cron: '@yearly',
      content: `${count}`,
    });
    assert.equal(one.status, 201, one.text);
    ids.push(one.body.schedule.id);
  }
  const db = openServiceDatabase(service);
  // All at once, as if the year had just begun.
  await db.sql`update schedules set due_at = date_trunc('second', now()), look_at = now()`;
  await db.close();

  await until('the first runs have ended and are told', () => hook.received.length > 0);
  await service.kill9();
  isDead = true;
  await service.restart();

  const ticksOf = async (id: string) => (await api('GET', `/v1/schedules/${id}/ticks`)).body.ticks;
  const runs: string[] = [];
  for (const id of ids) {
    const [tick, ...others] = await until('the tick was fired', async () => {
      const ticks = await ticksOf(id);
      return ticks.length > 0 && ticks;
    });
    assert.deepEqual([tick.state, tick.trigger, others.length], ['fired', 'schedule', 0]);
    runs.push(tick.runId);
  }
  assert.equal(new Set(runs).size, schedules);
  const all = (await api('GET', `/v1/agents/${agentId}/runs?limit=100`)).body.runs;
  assert.deepEqual(all.map((run: { id: string }) => run.id).sort(), [...runs].sort());

  const deliveries = async () =>
    (await api('GET', `/v1/webhook-endpoints/${endpointId}/deliveries?limit=100`)).body.deliveries as {
      id: string;
      runId: string;
      state: string;
    }[];
  // What was cut off is sent when its lease is over, a minute after it was taken; no test waits for that.
  const again = openServiceDatabase(service);
  await again.sql`update webhook_deliveries set due_at = now(), leased_until = null where state = 'pending'`;
  await again.close();
  await until('all of them were taken', async () => {
    const found = await deliveries();
    return found.length === schedules && found.every(({ state }) => state === 'delivered');
  });
  const told = await deliveries();
  assert.deepEqual(told.map(({ runId }) => runId).sort(), [...runs].sort());
  // Some of them came twice, under the same id.
  const received = new Set(hook.received.map(({ headers }) => headers['webhook-id']));
  assert.deepEqual([...received].sort(), told.map(({ id }) => id).sort());
});
