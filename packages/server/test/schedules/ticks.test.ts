import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, test, type TestContext } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { newId } from '../../src/domain/ids.ts';
import { limits } from '../../src/domain/limits.ts';
import { createCursors } from '../../src/domain/paging.ts';
import { openSchedules } from '../../src/open-schedules.ts';
import type { ScheduleInput } from '../../src/services/schedules-api.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { createScheduleStore } from '../../src/store/schedules.ts';
import { silentLog } from '../support/log.ts';
import { runWorld, type Replica, type RunWorld } from '../support/run-world.ts';
import { until } from '../support/until.ts';

let world: RunWorld;
let replica: Replica;
/** Does not execute, so that what it accepts waits. */
let other: Replica;

before(async () => {
  world = await runWorld();
  replica = await world.replica();
  other = await world.replica({ start: false });
});
after(() => world.close());

const page = { limit: 100, cursor: null };

/** Schedules of one agent by a clock that stands until it is set. Nothing is fired but by `runDue`. */
async function clockwork(
  t: TestContext,
  startsAt: string,
  { db, runs }: Replica = replica,
  agentId?: string,
) {
  const own = agentId ?? (await world.addAgent());
  const schedules = createScheduleStore(db);
  let nowMs = Date.parse(startsAt);
  const deps = { db, agents: createAgentStore(db), schedules, cursors: createCursors(randomBytes(32)) };
  const parts = openSchedules({ ...deps, runs, log: silentLog, now: () => nowMs });
  const { service } = parts;
  // What other tests made is not due in this one.
  t.after(() => schedules.removeAllOfAgent(own));
  return {
    ...parts,
    agentId: own,
    create: (input: Partial<ScheduleInput> = {}) =>
      service.create(world.owner, own, { cron: '0 * * * *', content: 'work', ...input }),
    set: (time: string) => void (nowMs = Date.parse(time)),
    /** Goes on from tick to tick. */
    async walk(to: string): Promise<void> {
      for (;;) {
        const { items } = await service.list(world.owner, own, page);
        const next = Math.min(...items.map(({ dueAt }) => dueAt?.getTime() ?? Infinity));
        nowMs = Math.min(Math.max(nowMs, next), Date.parse(to));
        if (next > nowMs) return;
        await parts.work.runDue();
      }
    },
    /** Oldest first. */
    async ticks(id: string) {
      const { items } = await service.ticks(world.owner, id, page);
      return items.reverse();
    },
  };
}

const shown = (tick: { dueAt: Date; state: string; reason: string | null; missedBefore: number }) =>
  [
    tick.dueAt.toISOString().slice(0, 16),
    tick.state,
    tick.reason,
    tick.missedBefore > 0 && `+${tick.missedBefore}`,
  ]
    .filter(Boolean)
    .join(' ');

async function messages(conversationId: string): Promise<string[]> {
  const { items } = await replica.conversations.messages(world.owner, conversationId, page);
  return items.reverse().map(({ role, content }) => `${role}: ${content}`);
}

test('02:30 in Berlin is fired once on each day, at the change when it is skipped and the first time when it is doubled', async (t) => {
  const clock = await clockwork(t, '2026-03-28T12:00Z');
  const schedule = await clock.create({ cron: '30 2 * * *', timeZone: 'Europe/Berlin' });
  await clock.walk('2026-03-30T03:00Z');
  assert.deepEqual((await clock.ticks(schedule.id)).map(shown), [
    '2026-03-29T01:00 fired',
    '2026-03-30T00:30 fired',
  ]);
  clock.set('2026-10-24T12:00Z');
  await clock.service.pause(world.owner, schedule.id);
  await clock.service.resume(world.owner, schedule.id);
  await clock.walk('2026-10-26T03:00Z');
  assert.deepEqual((await clock.ticks(schedule.id)).slice(2).map(shown), [
    '2026-10-25T00:30 fired',
    '2026-10-26T01:30 fired',
  ]);
  const found = await clock.service.get(world.owner, schedule.id);
  assert.equal(found.dueAt?.toISOString(), '2026-10-27T01:30:00.000Z');
});

test('a tick sends its message, and the agent answers it: in a conversation of its own, or in the kept one', async (t) => {
  const clock = await clockwork(t, '2026-11-28T08:30Z');
  const file = { kind: 'link' as const, name: 'list', mediaType: null, url: 'https://example.com/list' };
  const fresh = await clock.create({ content: 'each time anew', parts: [file] });
  const kept = await clock.create({ content: 'and again', conversation: 'kept' });
  await clock.walk('2026-11-28T10:01Z');
  const firsts = await clock.ticks(fresh.id);
  const seconds = await clock.ticks(kept.id);
  assert.deepEqual([firsts.length, seconds.length], [2, 2]);
  assert.equal(new Set(firsts.map((tick) => tick.conversationId)).size, 2);
  assert.equal(new Set(seconds.map((tick) => tick.conversationId)).size, 1);
  for (const { runId } of [...firsts, ...seconds]) {
    const { run } = await replica.runs.outcome(world.owner, runId!, 20_000);
    assert.equal(run.status, 'completed');
  }
  const id = seconds[0]!.conversationId!;
  assert.equal((await clock.service.get(world.owner, kept.id)).conversationId, id);
  assert.deepEqual((await messages(id)).sort(), [
    'assistant: and again',
    'assistant: and again',
    'user: and again',
    'user: and again',
  ]);
  const [first] = await world.log(firsts[0]!.conversationId!);
  assert.ok(first?.type === 'message.created');
  assert.deepEqual(first.data.parts, [file]);
  assert.deepEqual(first.data.metadata, {
    scheduleId: fresh.id,
    tickId: firsts[0]!.id,
    trigger: 'schedule',
    dueAt: '2026-11-28T09:00:00.000Z',
    timeZone: 'UTC',
  });
  assert.equal((await replica.conversations.get(world.owner, id)).source, 'schedule');
});

test('when the kept conversation is deleted, the next tick begins another one', async (t) => {
  const clock = await clockwork(t, '2026-11-28T08:30Z');
  const { id } = await clock.create({ conversation: 'kept' });
  await clock.walk('2026-11-28T09:01Z');
  const [first] = await clock.ticks(id);
  await replica.runs.outcome(world.owner, first!.runId!, 20_000);
  await replica.conversations.remove(world.owner, first!.conversationId!);
  await clock.walk('2026-11-28T11:01Z');
  const [, second, third] = await clock.ticks(id);
  assert.notEqual(second!.conversationId, first!.conversationId);
  assert.equal(third!.conversationId, second!.conversationId);
});

test('ticks that were missed are sent once, or noted as skipped; those of the last minute are not missed', async (t) => {
  const clock = await clockwork(t, '2026-11-28T08:30Z');
  const once = await clock.create({ cron: '*/10 * * * *', onMissed: 'once' });
  const skip = await clock.create({ cron: '*/10 * * * *', onMissed: 'skip' });
  clock.set('2026-11-28T09:20:30Z');
  while ((await clock.work.runDue()) > 0);
  // 08:40 to 09:10 were missed, and 09:20 is half a minute late.
  assert.deepEqual((await clock.ticks(once.id)).map(shown), [
    '2026-11-28T09:10 fired +3',
    '2026-11-28T09:20 fired',
  ]);
  assert.deepEqual((await clock.ticks(skip.id)).map(shown), [
    '2026-11-28T09:10 skipped missed +3',
    '2026-11-28T09:20 fired',
  ]);
});

test('of a long absence the last tick is the one that is told, and counting ends at a thousand', async (t) => {
  const clock = await clockwork(t, '2024-11-28T08:30Z');
  const { id } = await clock.create({ cron: '* * * * *', onMissed: 'skip' });
  clock.set('2026-11-28T08:30:20Z');
  await clock.work.runDue();
  assert.deepEqual((await clock.ticks(id)).map(shown), [
    `2026-11-28T08:29 skipped missed +${limits.scheduleMissedCounted}`,
  ]);
});

test('two replicas that look at the same time fire each tick once', async (t) => {
  const agentId = await world.addAgent();
  const one = await clockwork(t, '2026-11-28T08:30Z', replica, agentId);
  const two = await clockwork(t, '2026-11-28T08:30Z', other, agentId);
  const made = await Promise.all(
    Array.from({ length: 12 }, () => one.create({ cron: '*/5 * * * *', conversation: 'kept' })),
  );
  for (const time of ['08:35', '08:40', '08:45']) {
    for (const clock of [one, two]) clock.set(`2026-11-28T${time}:01Z`);
    const work = async (clock: typeof one) => {
      while ((await clock.work.runDue()) > 0);
    };
    await Promise.all([work(one), work(two), work(two), work(one)]);
    // What one replica held while the other looked is done by now, or is at the next look.
    await work(one);
  }
  for (const { id } of made) {
    const ticks = await one.ticks(id);
    assert.deepEqual(ticks.map(shown), [
      '2026-11-28T08:35 fired',
      '2026-11-28T08:40 fired',
      '2026-11-28T08:45 fired',
    ]);
    const conversationId = ticks[0]!.conversationId!;
    const sent = (await messages(conversationId)).filter((text) => text.startsWith('user'));
    assert.equal(sent.length, 3);
  }
});

test('a process that dies between the message and its record has sent nothing: the next one sends it, once', async (t) => {
  const clock = await clockwork(t, '2026-11-28T08:30Z');
  const { id } = await clock.create();
  clock.set('2026-11-28T09:00:01Z');
  const { db } = replica;
  await assert.rejects(
    db.tx(async () => {
      await clock.work.runDue();
      throw new Error('The process is gone.');
    }),
  );
  assert.deepEqual(await clock.ticks(id), []);
  const left = await replica.conversations.listForAgent(world.owner, clock.agentId, page);
  assert.deepEqual(left.items, []);
  await clock.work.runDue();
  assert.deepEqual((await clock.ticks(id)).map(shown), ['2026-11-28T09:00 fired']);
});

test('a message that is refused is noted with the reason, and the next tick is as ever', async (t) => {
  // Nobody executes what this replica accepts, so that the conversation stays busy.
  const agentId = await world.addAgent();
  const clock = await clockwork(t, '2026-11-28T08:30Z', other, agentId);
  const { conversationId } = await other.runs.send(world.owner, {
    agentId,
    conversationId: null,
    content: 'hold',
    onBusy: 'enqueue',
    source: 'api',
    idempotency: null,
  });
  // Takes the lane as an executor would, one that lives: the upkeep takes it from another.
  const holder = newId();
  await world.db.sql`insert into nodes (id, seen_at) values (${holder}, now() + interval '1 hour')`;
  await world.db.sql`
    update lanes set state = 'running', node_id = ${holder} where conversation_id = ${conversationId}`;
  const { id } = await clock.create({ conversation: 'kept', conversationId, onBusy: 'reject' });
  await clock.walk('2026-11-28T09:01Z');
  await world.db.sql`
    insert into budgets (owner_id, org_id, period, limit_micros, on_exceeded)
    values (${agentId}, ${world.owner.orgId}, 'day', 0, 'reject')`;
  await clock.service.update(world.owner, id, { conversation: 'new' });
  await clock.walk('2026-11-28T10:01Z');
  await world.db.sql`delete from budgets where owner_id = ${agentId}`;
  await clock.walk('2026-11-28T11:01Z');
  assert.deepEqual((await clock.ticks(id)).map(shown), [
    '2026-11-28T09:00 skipped conversation_busy',
    '2026-11-28T10:00 skipped budget_exceeded',
    '2026-11-28T11:00 fired',
  ]);
});

test('a paused schedule fires nothing and misses nothing; run now sends at any time', async (t) => {
  const clock = await clockwork(t, '2026-11-28T08:30Z');
  const { id } = await clock.create();
  const paused = await clock.service.pause(world.owner, id);
  assert.deepEqual([paused.status, paused.dueAt], ['paused', null]);
  const tick = await clock.service.runNow(world.owner, id);
  assert.deepEqual([tick.trigger, tick.state], ['manual', 'fired']);
  await replica.runs.outcome(world.owner, tick.runId!, 20_000);
  clock.set('2026-11-28T12:30Z');
  await clock.work.runDue();
  const resumed = await clock.service.resume(world.owner, id);
  assert.equal(resumed.dueAt?.toISOString(), '2026-11-28T13:00:00.000Z');
  await clock.walk('2026-11-28T13:01Z');
  assert.deepEqual(
    (await clock.ticks(id)).map(({ trigger, dueAt }) => [trigger, dueAt.toISOString()]),
    [
      ['manual', '2026-11-28T08:30:00.000Z'],
      ['schedule', '2026-11-28T13:00:00.000Z'],
    ],
  );
});

test('another line or zone counts from now; another name changes no tick', async (t) => {
  const clock = await clockwork(t, '2026-11-28T08:30Z');
  const { id } = await clock.create();
  clock.set('2026-11-28T09:00:10Z');
  const named = await clock.service.update(world.owner, id, { name: 'Hourly' });
  assert.equal(named.dueAt?.toISOString(), '2026-11-28T09:00:00.000Z');
  const moved = await clock.service.update(world.owner, id, { cron: '0 12 * * *', timeZone: 'Asia/Kolkata' });
  assert.equal(moved.dueAt?.toISOString(), '2026-11-29T06:30:00.000Z');
});

test('what cannot be is refused by the name of the field, and one agent has so many schedules', async (t) => {
  const clock = await clockwork(t, '2026-11-28T08:30Z');
  const elsewhere = await replica.runs.send(world.owner, {
    agentId: world.agentId,
    conversationId: null,
    content: 'other agent',
    onBusy: 'enqueue',
    source: 'api',
    idempotency: null,
  });
  const bad: [string, Partial<ScheduleInput>][] = [
    ['cron', { cron: '61 * * * *' }],
    ['cron', { cron: '*/30 * * * * *' }],
    ['timeZone', { timeZone: 'Berlin' }],
    ['content', { content: '' }],
    ['content', { content: 'a\u0000' }],
    ['name', { name: ' ' }],
    ['conversationId', { conversation: 'kept', conversationId: elsewhere.conversationId }],
    ['conversationId', { conversationId: elsewhere.conversationId }],
  ];
  for (const [field, input] of bad) {
    await assert.rejects(clock.create(input), (error: unknown) => {
      assert.ok(error instanceof DomainError, String(error));
      return error.code === 'invalid_request' && error.message.startsWith(`${field}:`);
    });
  }
  const all = await Promise.allSettled(
    Array.from({ length: limits.schedulesPerAgent + 2 }, () => clock.create()),
  );
  assert.equal(all.filter(({ status }) => status === 'fulfilled').length, limits.schedulesPerAgent);
  await assert.rejects(clock.create(), /at most 100 schedules/);
});

test('a schedule without a name is called by its line, with one blank between the fields, whatever stands there', async (t) => {
  const clock = await clockwork(t, '2026-11-28T08:30Z');
  for (const cron of ['0 0 1 1 *', '0\t0\t1\t1\t*', ' 0  0\n1\u00a01\u2028* ']) {
    const { name } = await clock.create({ cron });
    assert.equal(name, '0 0 1 1 *');
  }
  const long = `${Array.from({ length: 40 }, (_, at) => at).join(',')} \t0 1 1 *`;
  const { name } = await clock.create({ cron: long });
  assert.ok(long.startsWith(name) && [...name].length <= limits.nameChars, name);
});

test('the worker fires by itself what is due, and nothing when it was stopped', async (t) => {
  const clock = await clockwork(t, '2026-11-28T08:59:59Z');
  const { id } = await clock.create();
  clock.worker.start();
  clock.set('2026-11-28T09:00:00Z');
  await until('the tick was fired', async () => (await clock.ticks(id)).length === 1);
  await clock.worker.stop();
  clock.set('2026-11-28T10:00:00Z');
  clock.worker.wake();
  assert.equal((await clock.ticks(id)).length, 1);
});
