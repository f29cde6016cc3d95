import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { openServiceDatabase } from '../support/scenario-world.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';

/** A service whose clock the test sets; the clock of its database goes on as ever. */
async function clockwork(t: TestContext, startsAt: string) {
  const dir = mkdtempSync('/tmp/berth-w-');
  const file = join(dir, 'clock');
  const set = (time: string) => writeFileSync(file, `${Date.parse(time) - Date.now()}`);
  set(startsAt);
  const service = await startService({
    env: {
      NODE_OPTIONS: `--import=${new URL('../support/set-clock.mjs', import.meta.url).href}`,
      TEST_CLOCK_FILE: file,
      BERTH_RATE_LIMIT: '100000/60',
    },
  });
  t.after(async () => {
    await service.end();
    rmSync(dir, { recursive: true, force: true });
  });
  return { service, set };
}

/** The clock of the service, in Unix milliseconds: its ids begin with it (RFC 9562, section 5.7). */
async function clockOf({ api }: Service): Promise<number> {
  const id = (await api('GET', '/readyz')).headers.get('x-request-id')!;
  return Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16);
}

/** Kills the service when it has sent the message of the tick that `makeDue` makes due, and not yet noted the tick. */
async function killInMidTick(service: Service, makeDue: () => void): Promise<void> {
  const db = openServiceDatabase(service);
  let isKilled = false;
  try {
    await db.tx(async () => {
      const { sql } = db;
      // Whoever notes a tick waits for this, in the transaction in which it has sent the message.
      await sql`lock table schedule_ticks in share mode`;
      makeDue();
      await until('the note of a tick waits', async () => {
        const rows =
          await sql`select 1 from pg_locks where relation = 'schedule_ticks'::regclass and mode = 'RowExclusiveLock' and not granted`;
        return rows.length > 0;
      });
      isKilled = true;
      await service.kill9();
    });
  } catch (error) {
    // Its database may go with the service, and this transaction with it.
    if (!isKilled) throw error;
  } finally {
    await db.close();
  }
}

test('02:30 in Berlin is fired once at each change of the clock, by a service that is killed in the middle of the tick', async (t) => {
  const { service, set } = await clockwork(t, '2025-03-30T00:00Z');
  const { api } = service;
  const agentId = (await api('GET', '/v1/agents')).body.agents[0].id as string;
  const made = await api('POST', `/v1/agents/${agentId}/schedules`, {
    cron: '30 2 * * *',
    timeZone: 'Europe/Berlin',
    content: 'It is half past two.',
  });
  assert.equal(made.status, 201, made.text);
  const path = `/v1/schedules/${made.body.schedule.id}`;
  const nextDueAt = async () => {
    const found = await api('GET', path);
    assert.equal(found.status, 200, found.text);
    return found.body.schedule.nextDueAt as string;
  };
  const ticks = async () => (await api('GET', `${path}/ticks`)).body.ticks as Record<string, string>[];
  const runs = async () =>
    (await api('GET', `/v1/agents/${agentId}/runs?limit=100`)).body.runs as { id: string }[];
  const fired: string[] = [];

  // When the tick is due, and when the next one is. In spring there is no 02:30; in autumn there are two.
  const changes = [
    { due: '2025-03-30T01:00:00.000Z', next: '2025-03-31T00:30:00.000Z' },
    { due: '2025-10-26T00:30:00.000Z', next: '2025-10-27T01:30:00.000Z' },
  ];
  for (const { due, next } of changes) {
    // What is due in the months between is not missed.
    await api('POST', `${path}/pause`);
    const eve = `${due.slice(0, 10)}T00:00Z`;
    set(eve);
    await until('the clock has been set', async () => (await clockOf(service)) >= Date.parse(eve));
    await api('POST', `${path}/resume`);
    assert.equal(await nextDueAt(), due);
    await killInMidTick(service, () => set(due.replace('00.000Z', '01.000Z')));
    await service.restart();
    const [tick] = await until('the tick was fired', async () => {
      const all = await ticks();
      return all.length > fired.length ? all : null;
    });
    fired.push(tick!['runId']!);
    assert.deepEqual([tick!['state'], tick!['trigger'], tick!['dueAt']], ['fired', 'schedule', due]);
    assert.equal(await nextDueAt(), next);
  }
  assert.equal((await ticks()).length, changes.length);
  assert.deepEqual((await runs()).map(({ id }) => id).sort(), fired.sort());
});
