import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { writeRuns, type LaneWrite, type LedgerRow } from '../../src/store/lanes.ts';
import { runWorld, send } from '../support/run-world.ts';
import { gate } from '../support/scripts.ts';
import { until } from '../support/until.ts';

for (const count of [1, 2]) {
  test(`who holds a lane can ask its run to stop while usage is being written for ${count === 1 ? 'it' : 'it and another'}`, async (t) => {
    const world = await runWorld();
    t.after(() => world.close());
    const door = gate();
    t.after(() => door.open());
    const { agentId, owner } = world;
    const { runs, life } = await world.replica({
      async script() {
        await door.opened;
        return { outcome: 'completed' };
      },
    });
    for (let n = 0; n < count; n += 1) await runs.send(owner, send(`${n}`, { agentId }));
    await until('all run', async () => (await life.owned()).length === count);
    const lanes = await life.owned();
    const [{ runId, conversationId }] = lanes as [(typeof lanes)[number]];
    const usage: LedgerRow = {
      id: newId(),
      org_id: owner.orgId,
      agent_id: agentId,
      run_id: runId,
      key_id: null,
      meter: 'model.input_tokens',
      model: 'demo/guide',
      quantity: 1,
      unit_price: null,
      price_version: '1',
      cost_micros: '0',
      at: new Date().toISOString(),
      reservation_id: null,
    };
    const nothing = { told: null, events: [], asked: [], status: null, error: null, message: null };
    const shares: LaneWrite[] = lanes.map((lane) => ({ ...lane, ...nothing, writeNo: 1_000 }));
    let written: Promise<unknown> | undefined;
    await world.db.sql.begin(async (sql) => {
      // As an interrupting send and a cancel do.
      await sql`select 1 from lanes where conversation_id = ${conversationId} for update`;
      written = writeRuns(world.db, shares, [usage], new Date());
      written.catch(() => undefined);
      await until('the write waits for the lane', async () => {
        // Outside of the transaction, in which it would always be the same. On a slow machine the renewal of the lease,
        // which comes by itself, waits for the lane as well.
        const waiting = await world.db.sql`select 1 from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock' and query like '%write_run%'`;
        return waiting.length === 1;
      });
      await sql`update runs set cancel_requested_at = now() where id = ${runId}`;
    });
    await written;
    assert.equal((await runs.get(owner, runId)).usage.inputTokens, 1);
  });
}
