import type { Api } from './service.ts';

/** A schedule of the agent, whose next tick is far away. */
export async function madeSchedule(call: Api, agentId: string): Promise<string> {
  const made = await call('POST', `/v1/agents/${agentId}/schedules`, { cron: '@yearly', content: 'kept' });
  if (made.status !== 201) throw new Error(`No schedule was made: ${made.status} ${made.text}`);
  return (made.body as { schedule: { id: string } }).schedule.id;
}
