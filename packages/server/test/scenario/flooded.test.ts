import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { World } from '../support/scenario-world.ts';
import { startWorld } from '../support/scenario-world.ts';
import { until } from '../support/until.ts';

/** A service of its own, with few places. */
let started: Promise<World> | undefined;
const world = () => (started ??= startWorld({ BERTH_MAX_CONCURRENT_RUNS: '4' }));
after(async () => (await started)?.end());

test('a key of one agent that fills every place it gets keeps no other agent from running', async () => {
  const { as, keys, call, agentId, otherAgentId, foreignAgentId, model, release } = await world();
  const flood = as(keys.agentUse);
  const sent = [];
  for (let n = 0; n < 12; n += 1) {
    const body = { agentId, content: `hold: flood ${n}` };
    sent.push(await flood('POST', '/api/v1/chat/send', body, { prefer: 'respond-async' }));
  }
  assert.deepEqual(
    sent.map(({ status }) => status),
    sent.map(() => 202),
  );
  const asked = () => model.requests.filter((one) => one.bodyBytes.includes('hold: flood')).length;
  await until('the flood has its places', () => asked() === 2);
  for (const [api, other] of [
    [call, otherAgentId],
    [as(keys.foreign), foreignAgentId],
  ] as const) {
    const reply = await api('POST', '/api/v1/chat/send', { agentId: other, content: 'hello' });
    assert.deepEqual([reply.status, reply.body?.message?.content], [200, 'HELLO'], reply.text.slice(0, 300));
  }
  assert.equal(asked(), 2);
  release('flood');
  for (const { body } of sent)
    await until(
      'it ends',
      async () => (await call('GET', `/v1/runs/${body.runId}`)).body.run.status === 'completed',
    );
});
