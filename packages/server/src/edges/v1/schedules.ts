import { limits } from '../../domain/limits.ts';
import { given } from '../http/given.ts';
import { route } from '../http/route.ts';
import { scheduleOf, tickOf } from '../present/schedule.ts';
import { pageQuery } from '../schemas/basics.ts';
import {
  ScheduleAnswer,
  ScheduleCreate,
  scheduleExample,
  SchedulePage,
  ScheduleTickAnswer,
  ScheduleTickPage,
  ScheduleUpdate,
  tickExample,
} from '../schemas/schedule.ts';

const tag = 'Schedules';
const one = { schema: ScheduleAnswer, example: { schedule: scheduleExample } };

export const scheduleRoutes = [
  route({
    id: 'listSchedules',
    method: 'get',
    path: '/v1/agents/{agentId}/schedules',
    tag,
    access: 'edit',
    summary: "List an agent's schedules",
    description: 'Newest first.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of schedules.',
        schema: SchedulePage,
        example: { schedules: [scheduleExample], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.schedules.list(caller, params.agentId, query);
      return {
        status: 200 as const,
        body: { schedules: page.items.map(scheduleOf), nextCursor: page.nextCursor },
      };
    },
  }),
  route({
    id: 'createSchedule',
    method: 'post',
    path: '/v1/agents/{agentId}/schedules',
    tag,
    access: 'edit',
    summary: 'Send an agent a message by the clock',
    description:
      'Each tick sends the message once, whatever restarts and however many replicas there are. Unless said otherwise, in UTC, in a conversation of its own, and once for ticks that were missed.',
    body: ScheduleCreate,
    bodyExample: {
      name: 'Morning report',
      cron: '30 8 * * MON-FRI',
      timeZone: 'Europe/Berlin',
      content: 'Write the morning report.',
    },
    replies: {
      201: { ...one, description: 'The schedule.', headers: { Location: 'Path of the schedule.' } },
    },
    errors: ['conflict'],
    async handler({ services, caller, params, body }) {
      const made = await services.schedules.create(caller, params.agentId, given(body));
      return {
        status: 201 as const,
        body: { schedule: scheduleOf(made) },
        headers: { Location: `/v1/schedules/${made.id}` },
      };
    },
  }),
  route({
    id: 'getSchedule',
    method: 'get',
    path: '/v1/schedules/{scheduleId}',
    tag,
    access: 'edit',
    summary: 'Get a schedule',
    description: 'With the time of its next tick.',
    replies: { 200: { ...one, description: 'The schedule.' } },
    async handler({ services, caller, params }) {
      const schedule = await services.schedules.get(caller, params.scheduleId);
      return { status: 200 as const, body: { schedule: scheduleOf(schedule) } };
    },
  }),
  route({
    id: 'updateSchedule',
    method: 'patch',
    path: '/v1/schedules/{scheduleId}',
    tag,
    access: 'edit',
    summary: 'Change a schedule',
    description:
      'What is not named stays as it is. With another line or zone the next tick is the first after now.',
    body: ScheduleUpdate,
    bodyExample: { cron: '0 9 * * *' },
    replies: { 200: { ...one, description: 'The schedule as it is now.' } },
    async handler({ services, caller, params, body }) {
      const schedule = await services.schedules.update(caller, params.scheduleId, given(body));
      return { status: 200 as const, body: { schedule: scheduleOf(schedule) } };
    },
  }),
  route({
    id: 'deleteSchedule',
    method: 'delete',
    path: '/v1/schedules/{scheduleId}',
    tag,
    access: 'edit',
    summary: 'Delete a schedule',
    description: 'With the records of its ticks; conversations and runs stay.',
    replies: { 204: { description: 'It is gone.', schema: null } },
    async handler({ services, caller, params }) {
      await services.schedules.remove(caller, params.scheduleId);
      return { status: 204 as const };
    },
  }),
  ...(['pause', 'resume'] as const).map((action) =>
    route({
      id: action === 'pause' ? 'pauseSchedule' : 'resumeSchedule',
      method: 'post',
      path: action === 'pause' ? '/v1/schedules/{scheduleId}/pause' : '/v1/schedules/{scheduleId}/resume',
      tag,
      access: 'edit',
      summary: action === 'pause' ? 'Pause a schedule' : 'Resume a schedule',
      description:
        action === 'pause'
          ? 'Nothing is due any more. Runs that it started go on.'
          : 'The next tick is the first after now; what was due meanwhile was not missed.',
      replies: { 200: { ...one, description: 'The schedule as it is now.' } },
      async handler({ services, caller, params }) {
        const schedule = await services.schedules[action](caller, params.scheduleId);
        return { status: 200 as const, body: { schedule: scheduleOf(schedule) } };
      },
    }),
  ),
  route({
    id: 'runSchedule',
    method: 'post',
    path: '/v1/schedules/{scheduleId}/run',
    tag,
    access: 'edit',
    summary: 'Send the message of a schedule now',
    description: 'Also when it is paused. Ticks by the clock stay as they are.',
    replies: {
      200: {
        description: 'The record, with the run that it started.',
        schema: ScheduleTickAnswer,
        example: { tick: { ...tickExample, trigger: 'manual' } },
      },
    },
    errors: ['budget_exceeded', 'conversation_busy', 'queue_full', 'too_many_sandboxes'],
    async handler({ services, caller, params }) {
      const tick = await services.schedules.runNow(caller, params.scheduleId);
      return { status: 200 as const, body: { tick: tickOf(tick) } };
    },
  }),
  route({
    id: 'listScheduleTicks',
    method: 'get',
    path: '/v1/schedules/{scheduleId}/ticks',
    tag,
    access: 'edit',
    summary: 'List what became of the ticks of a schedule',
    description: `Newest first, kept for ${limits.scheduleTickDays} days.`,
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of records.',
        schema: ScheduleTickPage,
        example: { ticks: [tickExample], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.schedules.ticks(caller, params.scheduleId, query);
      return { status: 200 as const, body: { ticks: page.items.map(tickOf), nextCursor: page.nextCursor } };
    },
  }),
];
