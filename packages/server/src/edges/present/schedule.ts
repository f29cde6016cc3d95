import type { Schedule, Tick } from '../../services/schedules-api.ts';

export const scheduleOf = (schedule: Schedule) => ({
  id: schedule.id,
  agentId: schedule.agentId,
  name: schedule.name,
  status: schedule.status,
  cron: schedule.cron,
  timeZone: schedule.timeZone,
  content: schedule.content,
  parts: schedule.parts,
  conversation: schedule.conversation,
  conversationId: schedule.conversationId,
  onBusy: schedule.onBusy,
  onMissed: schedule.onMissed,
  nextDueAt: schedule.dueAt?.toISOString() ?? null,
  createdAt: schedule.createdAt.toISOString(),
  updatedAt: schedule.updatedAt.toISOString(),
});

export const tickOf = (tick: Tick) => ({
  id: tick.id,
  scheduleId: tick.scheduleId,
  trigger: tick.trigger,
  state: tick.state,
  dueAt: tick.dueAt.toISOString(),
  firedAt: tick.firedAt?.toISOString() ?? null,
  reason: tick.reason,
  message: tick.message,
  missedBefore: tick.missedBefore,
  conversationId: tick.conversationId,
  runId: tick.runId,
});
