import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { EventBody } from '../../src/domain/events.ts';
import { createRunWriters } from '../../src/services/run-writer.ts';
import type { Claim } from '../../src/store/lanes.ts';
import type { Database } from '../../src/store/database.ts';
import { silentLog } from '../support/log.ts';
import { runWorld, send } from '../support/run-world.ts';
import { inTime } from '../support/until.ts';

const WRITES = 25;
const PACE_MS = 5;
/** Node's timers may come so much early. */
const EARLY_MS = 1;

/** From the end of each write to the begin of the next, while each run has something to write at any time. */
async function gapsOf(t: TestContext, conversations: number): Promise<number[]> {
  const world = await runWorld();
  t.after(() => world.close());
  const { runs, life } = await world.replica({ start: false });
  const { agentId, owner } = world;
  for (let sent = 0; sent < conversations; sent += 1) await runs.send(owner, send('go', { agentId }));
  const claims = await life.claim(null, conversations);
  assert.equal(claims.length, conversations);
  let endMs: number | null = null;
  const gaps: number[] = [];
  const db = spied(world.db, async (write) => {
    if (endMs !== null) gaps.push(performance.now() - endMs);
    // Comes while the write is under way, and so is for the next one.
    if (gaps.length < WRITES) for (const [at, claim] of claims.entries()) writers[at]!.append(delta(claim));
    const written = await write();
    endMs = performance.now();
    return written;
  });
  const { open } = createRunWriters(db, life.publish, silentLog);
  const writers = claims.map(open);
  for (const [at, claim] of claims.entries()) writers[at]!.append(delta(claim));
  await inTime('all is written', Promise.all(writers.map((writer) => writer.flushed())));
  for (const claim of claims) {
    const log = await world.log(claim.conversationId);
    assert.equal(log.filter((event) => event.type === 'message.delta').length, WRITES + 1);
  }
  return gaps;
}

const delta = ({ runId, messageId }: Claim): EventBody => ({
  type: 'message.delta',
  data: { runId, messageId, text: 'x' },
});

function spied(db: Database, around: (write: () => Promise<unknown>) => Promise<unknown>): Database {
  const sql = (strings: TemplateStringsArray, ...values: never[]) => {
    const write = () => db.sql(strings, ...values);
    return strings.join('').includes('write_run') ? around(write) : write();
  };
  return { ...db, sql: sql as unknown as Database['sql'], outside: (work) => work() };
}

test('writes that four runs share leave time for the next to be shared, and each run has all of its own in the log', async (t) => {
  const gaps = await gapsOf(t, 4);
  assert.equal(gaps.length, WRITES);
  const shortestMs = Math.min(...gaps);
  assert.ok(shortestMs >= PACE_MS - EARLY_MS, `${shortestMs} ms`);
});

test('writes of fewer runs wait for nothing', async (t) => {
  const gaps = await gapsOf(t, 3);
  // The machine may be slow in some.
  const shortestMs = Math.min(...gaps);
  assert.ok(shortestMs < PACE_MS - EARLY_MS, `${shortestMs} ms`);
});
