import { limits } from './domain/limits.ts';
import type { Log } from './domain/log.ts';
import type { Cursors } from './domain/paging.ts';
import { createDueWorker } from './runtime/due-worker.ts';
import type { RunsService } from './services/api.ts';
import { createFire, createScheduleWork } from './services/schedule-work.ts';
import { createSchedules } from './services/schedules.ts';
import type { AgentStore } from './store/agents.ts';
import type { Database } from './store/database.ts';
import type { ScheduleStore } from './store/schedules.ts';

/** What agents get by the clock: the resource, and the sending. `now` is the clock, in Unix milliseconds. */
export function openSchedules(deps: {
  db: Database;
  agents: AgentStore;
  schedules: ScheduleStore;
  runs: Pick<RunsService, 'send'>;
  cursors: Cursors;
  log: Log;
  now?: () => number;
}) {
  const { schedules, now = Date.now } = deps;
  const log = deps.log.child({ part: 'schedules' });
  const fire = createFire({ ...deps, now });
  const work = createScheduleWork({ ...deps, now, log, fire });
  return {
    service: createSchedules({ ...deps, now, fire }),
    work,
    worker: createDueWorker({ work: () => work, lookEveryMs: 1_000, log }),
    purge: () => schedules.purgeTicks(limits.scheduleTickDays),
  };
}
