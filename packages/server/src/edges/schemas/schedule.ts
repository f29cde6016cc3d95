import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { scheduleConversations, scheduleMissed } from '../../domain/schedule.ts';
import { model, name, nextCursor, text, time, uuid } from './basics.ts';
import { messageParts, Part } from './part.ts';

const cron = text(
  1,
  limits.cronChars,
  'Five fields, minute to day of the week, with `*`, lists, ranges, steps and names; or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.',
);
const timeZone = text(1, 64, 'A name of the IANA database. Clock changes are as in the guide to schedules.');
const conversation = z
  .enum(scheduleConversations)
  .describe('Each tick begins a conversation, or all go on with one.');
const onBusy = z
  .enum(['enqueue', 'interrupt', 'reject'])
  .describe('When the kept conversation has an unfinished run. `reject`: the tick is skipped.');
const onMissed = z
  .enum(scheduleMissed)
  .describe(
    `What becomes of ticks that are over ${limits.scheduleGraceSeconds} seconds late: nothing, or one message for all of them.`,
  );

export const Schedule = model(
  'Schedule',
  z.object({
    id: uuid('Identifier of the schedule.'),
    agentId: uuid('The agent that gets the messages.'),
    name: z.string().describe('What you called it.'),
    status: z.enum(['active', 'paused']),
    cron: z.string(),
    timeZone: z.string(),
    content: z.string().describe("The message's text."),
    parts: z.array(Part).describe('What it carries beside its text.'),
    conversation,
    conversationId: uuid('Of a kept conversation; null until the first tick.').nullable(),
    onBusy,
    onMissed,
    nextDueAt: time('When the next tick is due; null: paused.').nullable(),
    createdAt: time('When it was made.'),
    updatedAt: time('When it was last changed.'),
  }),
  'A message that an agent gets by the clock.',
);
export const ScheduleAnswer = model('ScheduleAnswer', z.object({ schedule: Schedule }));
export const SchedulePage = model('SchedulePage', z.object({ schedules: z.array(Schedule), nextCursor }));

const changes = {
  name: name().optional(),
  timeZone: timeZone.optional(),
  parts: messageParts.optional(),
  conversation: conversation.optional(),
  conversationId: z
    .string()
    .nullable()
    .describe('With `kept`: a conversation that there is. Null: the next tick begins one.')
    .optional(),
  onBusy: onBusy.optional(),
  onMissed: onMissed.optional(),
};
const content = text(0, limits.contentChars, "The message's text. May be empty when there are parts.");
export const ScheduleCreate = model('ScheduleCreate', z.strictObject({ cron, content, ...changes }));
export const ScheduleUpdate = model(
  'ScheduleUpdate',
  z.strictObject({ cron: cron.optional(), content: content.optional(), ...changes }),
);

export const ScheduleTick = model(
  'ScheduleTick',
  z.object({
    id: uuid('Identifier of the record.'),
    scheduleId: uuid('The schedule.'),
    trigger: z.enum(['schedule', 'manual']).describe('By the clock, or because somebody asked for it.'),
    state: z.enum(['fired', 'skipped']),
    dueAt: time('When it was due.'),
    firedAt: time('When the message was sent.').nullable(),
    reason: z
      .string()
      .nullable()
      .describe('Why it was skipped: `missed`, or the code of the error by which the message was refused.'),
    message: z.string().nullable().describe('The same in words.'),
    missedBefore: z
      .int()
      .describe(
        `How many missed ticks before it this record stands for too; counted up to ${limits.scheduleMissedCounted}.`,
      ),
    conversationId: uuid('Where the message went.').nullable(),
    runId: uuid('The run that it started.').nullable(),
  }),
  'What became of a tick of a schedule.',
);
export const ScheduleTickAnswer = model('ScheduleTickAnswer', z.object({ tick: ScheduleTick }));
export const ScheduleTickPage = model(
  'ScheduleTickPage',
  z.object({ ticks: z.array(ScheduleTick), nextCursor }),
);

const id = '0197c2b4-6f7e-7c2a-9d51-3f0a1c9be8a2';
export const scheduleExample = {
  id,
  agentId: '0197c2b4-6f7e-7c2a-9d51-3f0a1c9be841',
  name: 'Morning report',
  status: 'active' as const,
  cron: '30 8 * * MON-FRI',
  timeZone: 'Europe/Berlin',
  content: 'Write the morning report.',
  parts: [],
  conversation: 'new' as const,
  conversationId: null,
  onBusy: 'enqueue' as const,
  onMissed: 'once' as const,
  nextDueAt: '2026-11-30T07:30:00.000Z',
  createdAt: '2026-11-28T09:00:00.000Z',
  updatedAt: '2026-11-28T09:00:00.000Z',
};
export const tickExample = {
  id: '0197c2b4-7000-7c2a-9d51-3f0a1c9be8a3',
  scheduleId: id,
  trigger: 'schedule' as const,
  state: 'fired' as const,
  dueAt: '2026-11-30T07:30:00.000Z',
  firedAt: '2026-11-30T07:30:00.412Z',
  reason: null,
  message: null,
  missedBefore: 0,
  conversationId: '0197c2b4-7001-7c2a-9d51-3f0a1c9be842',
  runId: '0197c2b4-7002-7c2a-9d51-3f0a1c9be842',
};
