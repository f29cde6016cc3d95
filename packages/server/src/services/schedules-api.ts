import type { Principal } from '../domain/nouns.ts';
import type { Page, PageQuery } from '../domain/paging.ts';
import type { MessagePart } from '../domain/parts.ts';
import type { ScheduleConversation, ScheduleMissed } from '../domain/schedule.ts';
import type { ScheduleRow, TickRow } from '../store/schedules.ts';
import type { OnBusy } from './api.ts';

export type Schedule = ScheduleRow;
export type Tick = TickRow;

export interface ScheduleInput {
  /** The line of cron when left out. */
  name?: string;
  /** Five fields, or `@daily` and the like. */
  cron: string;
  /** Of the IANA database; UTC when left out. */
  timeZone?: string;
  /** May be empty when there are parts. */
  content: string;
  parts?: MessagePart[];
  /** `new` when left out. */
  conversation?: ScheduleConversation;
  /** With `kept`: one that there is; else the first tick begins one. */
  conversationId?: string | null;
  /** What a tick does when the kept conversation has an unfinished run. `enqueue` when left out. */
  onBusy?: OnBusy;
  /** `once` when left out. */
  onMissed?: ScheduleMissed;
}

export type SchedulePatch = Partial<ScheduleInput>;

/** Every call needs edit access to the agent: a schedule makes it work. */
export interface SchedulesService {
  list(p: Principal, agentId: string, query: PageQuery): Promise<Page<Schedule>>;
  get(p: Principal, id: string): Promise<Schedule>;
  create(p: Principal, agentId: string, input: ScheduleInput): Promise<Schedule>;
  /** Ticks of the old line that are due and not yet fired are void when the line or the zone changes. */
  update(p: Principal, id: string, patch: SchedulePatch): Promise<Schedule>;
  remove(p: Principal, id: string): Promise<void>;
  pause(p: Principal, id: string): Promise<Schedule>;
  /** What was due while it was paused is no missed tick. */
  resume(p: Principal, id: string): Promise<Schedule>;
  /** Sends the message now, also when it is paused. Throws what a send throws. */
  runNow(p: Principal, id: string): Promise<Tick>;
  /** What became of its ticks, newest first. */
  ticks(p: Principal, id: string, query: PageQuery): Promise<Page<Tick>>;
}
