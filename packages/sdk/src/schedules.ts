import type { ListOptions, Page } from './client.ts';
import type { RequestOptions } from './http.ts';
import type { Schedule, ScheduleCreate, ScheduleTick, ScheduleUpdate } from './types.ts';

const id = encodeURIComponent;

/** Messages that an agent gets by the clock. */
export function createSchedules(
  json: <T>(method: string, path: string, request?: RequestOptions) => Promise<T>,
  list: <T>(path: string, noun: string, query?: ListOptions) => Promise<Page<T>>,
) {
  const one = async (method: string, path: string, body?: object) =>
    (await json<{ schedule: Schedule }>(method, path, body === undefined ? {} : { body })).schedule;
  const path = (scheduleId: string) => `/v1/schedules/${id(scheduleId)}`;

  return {
    schedules: {
      list: (agentId: string, query?: ListOptions) =>
        list<Schedule>(`/v1/agents/${id(agentId)}/schedules`, 'schedules', query),
      get: (scheduleId: string) => one('GET', path(scheduleId)),
      create: (agentId: string, input: ScheduleCreate) =>
        one('POST', `/v1/agents/${id(agentId)}/schedules`, input),
      update: (scheduleId: string, patch: ScheduleUpdate) => one('PATCH', path(scheduleId), patch),
      delete: (scheduleId: string) => json<void>('DELETE', path(scheduleId)),
      pause: (scheduleId: string) => one('POST', `${path(scheduleId)}/pause`, {}),
      resume: (scheduleId: string) => one('POST', `${path(scheduleId)}/resume`, {}),
      /** Sends its message now. */
      run: async (scheduleId: string) =>
        (await json<{ tick: ScheduleTick }>('POST', `${path(scheduleId)}/run`, { body: {} })).tick,
      ticks: (scheduleId: string, query?: ListOptions) =>
        list<ScheduleTick>(`${path(scheduleId)}/ticks`, 'ticks', query),
    },
  };
}
