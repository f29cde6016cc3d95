import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Accepted } from '../../src/services/api.ts';
import type { Replica, RunWorld } from '../support/run-world.ts';
import { echo, runWorld, send } from '../support/run-world.ts';
import { gate } from '../support/scripts.ts';

let world: RunWorld;
let replica: Replica;
const door = gate();
before(async () => {
  world = await runWorld();
  replica = await world.replica({
    async script(turn, sandbox) {
      if (turn.content.startsWith('hold')) await door.opened;
      return echo(turn, sandbox);
    },
  });
});
after(() => world.close());

async function said(content: string): Promise<Accepted> {
  const sent = await replica.runs.send(world.owner, send(content, { agentId: world.agentId }));
  await replica.runs.outcome(world.owner, sent.runId, 60_000);
  return sent;
}

const goOn = (runId: string, content: string, key: string | null = null) =>
  replica.runs.sendAfter(world.owner, runId, {
    ...send(content, { agentId: world.agentId }),
    idempotency: key === null ? null : { key, requestHash: content },
  });

async function rowsOf(conversationId: string): Promise<number[]> {
  const [row] = await world.db.sql<{ counts: number[] }[]>`
    select array[(select count(*) from runs where conversation_id = ${conversationId}),
      (select count(*) from messages where conversation_id = ${conversationId}),
      (select next_seq from lanes where conversation_id = ${conversationId})]::int[] as counts`;
  return row!.counts;
}

test('of those that go on from one run at the same moment one does, and the others leave nothing', async () => {
  const first = await said('first');
  const tried = await Promise.all(['a', 'b', 'c', 'd', 'e'].map((name) => goOn(first.runId, `hold ${name}`)));
  const [sent, ...more] = tried.filter((one) => one !== null);
  assert.ok(sent && more.length === 0, JSON.stringify(tried));
  assert.equal(sent.conversationId, first.conversationId);
  const runs = await world.db.sql<{ id: string }[]>`
    select id from runs where conversation_id = ${first.conversationId} order by accept_seq`;
  assert.deepEqual(
    runs.map(({ id }) => id),
    [first.runId, sent.runId],
  );
  // What waits behind a run that goes on stands behind it all the same, and nothing comes between them.
  const second = await goOn(sent.runId, 'second');
  assert.equal(second?.conversationId, first.conversationId);
  assert.equal(await goOn(sent.runId, 'too late'), null);
  door.open();
  await replica.runs.outcome(world.owner, second.runId, 60_000);
  const before = await rowsOf(first.conversationId);
  assert.equal(await goOn(first.runId, 'later still', 'moved on'), null);
  assert.deepEqual(await rowsOf(first.conversationId), before);
  const kept = await world.db.sql`select 1 from idempotency where idempotency_key = 'moved on'`;
  assert.equal(kept.length, 0);
});

test('what was sent before with the same key is answered, although more was said since', async () => {
  const first = await said('first');
  const sent = await goOn(first.runId, 'once', 'my key');
  await said('elsewhere');
  const next = await goOn(sent!.runId, 'and more');
  await replica.runs.outcome(world.owner, next!.runId, 60_000);
  const again = await goOn(first.runId, 'once', 'my key');
  assert.deepEqual([again?.runId, again?.replayed], [sent!.runId, true]);
  await assert.rejects(goOn(first.runId, 'another', 'my key'), { code: 'idempotency_key_reused' });
});
