import {
  everyItem,
  type Schedule,
  type ScheduleCreate,
  type ScheduleTick,
  type ScheduleUpdate,
} from '@berth/sdk';
import { text, type Command, type Context, type Values } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable } from '../print.ts';

function show(context: Context, schedule: Schedule): void {
  printOne(context, schedule, [
    ['id', schedule.id],
    ['name', schedule.name],
    ['status', schedule.status],
    ['cron', schedule.cron],
    ['time zone', schedule.timeZone],
    ['next', schedule.nextDueAt ?? 'never'],
    ['conversation', schedule.conversationId ?? schedule.conversation],
    ['on busy', schedule.onBusy],
    ['on missed', schedule.onMissed],
    ['content', schedule.content],
  ]);
}

const cells = (tick: ScheduleTick): string[] => [
  tick.dueAt,
  tick.trigger,
  tick.state,
  tick.runId ?? '',
  tick.reason === null ? '' : `${tick.reason}: ${tick.message}`,
];
const cellNames = ['due', 'trigger', 'state', 'run', 'reason'];

const settings = {
  name: { type: 'string' },
  zone: { type: 'string' },
  conversation: { type: 'string' },
  'on-busy': { type: 'string' },
  'on-missed': { type: 'string' },
} as const;

const settingsUsage =
  '[--name NAME] [--zone Europe/Berlin] [--conversation new|kept|ID] [--on-busy enqueue|interrupt|reject] [--on-missed skip|once]';

/** The service itself says what a value may be. */
function readSettings(flags: Values): ScheduleUpdate {
  const given: Record<string, unknown> = {
    name: flags['name'],
    timeZone: flags['zone'],
    onBusy: flags['on-busy'],
    onMissed: flags['on-missed'],
  };
  const conversation = flags['conversation'];
  const isId = typeof conversation === 'string' && !['new', 'kept'].includes(conversation);
  given['conversation'] = isId ? 'kept' : conversation;
  if (isId) given['conversationId'] = conversation;
  return Object.fromEntries(
    Object.entries(given).filter(([, value]) => value !== undefined),
  ) as ScheduleUpdate;
}

export const scheduleCommands: Command[] = [
  {
    name: 'schedules list',
    usage: '<agent>',
    summary: 'List the schedules of an agent, newest first',
    positionals: [1, 1],
    async run(context, [nameOrId]) {
      const agent = await findAgent(context, nameOrId!);
      const found = await Array.fromAsync(
        everyItem((query) => context.client.schedules.list(agent.id, query)),
      );
      printTable(
        context,
        found,
        ['id', 'status', 'cron', 'time zone', 'next', 'name'],
        found.map((one) => [one.id, one.status, one.cron, one.timeZone, one.nextDueAt ?? 'never', one.name]),
      );
    },
  },
  {
    name: 'schedules create',
    usage: `<agent> <cron> <message> ${settingsUsage}`,
    summary: 'Send an agent a message by the clock, such as "30 8 * * MON-FRI"',
    options: settings,
    positionals: [3, 3],
    async run(context, [nameOrId, cron, content], flags) {
      const agent = await findAgent(context, nameOrId!);
      const input = { ...readSettings(flags), cron: cron!, content: content! } as ScheduleCreate;
      show(context, await context.client.schedules.create(agent.id, input));
    },
  },
  {
    name: 'schedules show',
    usage: '<schedule id>',
    summary: 'Show a schedule, and when it is next due',
    positionals: [1, 1],
    run: async (context, [scheduleId]) => show(context, await context.client.schedules.get(scheduleId!)),
  },
  {
    name: 'schedules update',
    usage: `<schedule id> [--cron LINE] [--message TEXT] ${settingsUsage}`,
    summary: 'Change a schedule',
    options: { ...settings, cron: { type: 'string' }, message: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [scheduleId], flags) {
      const patch = readSettings(flags);
      const cron = text(flags, 'cron');
      const content = text(flags, 'message');
      if (cron !== undefined) patch.cron = cron;
      if (content !== undefined) patch.content = content;
      show(context, await context.client.schedules.update(scheduleId!, patch));
    },
  },
  {
    name: 'schedules pause',
    usage: '<schedule id>',
    summary: 'Send nothing by it for a while',
    positionals: [1, 1],
    run: async (context, [scheduleId]) => show(context, await context.client.schedules.pause(scheduleId!)),
  },
  {
    name: 'schedules resume',
    usage: '<schedule id>',
    summary: 'Go on with a paused schedule, from the next tick on',
    positionals: [1, 1],
    run: async (context, [scheduleId]) => show(context, await context.client.schedules.resume(scheduleId!)),
  },
  {
    name: 'schedules run',
    usage: '<schedule id>',
    summary: 'Send its message now',
    positionals: [1, 1],
    async run(context, [scheduleId]) {
      const tick = await context.client.schedules.run(scheduleId!);
      printOne(context, tick, [
        ['run', tick.runId ?? ''],
        ['conversation', tick.conversationId ?? ''],
      ]);
    },
  },
  {
    name: 'schedules ticks',
    usage: '<schedule id>',
    summary: 'List what became of its ticks, newest first',
    positionals: [1, 1],
    async run(context, [scheduleId]) {
      const { items } = await context.client.schedules.ticks(scheduleId!, { limit: 100 });
      printTable(context, items, cellNames, items.map(cells));
    },
  },
  {
    name: 'schedules delete',
    usage: '<schedule id>',
    summary: 'Delete a schedule and the records of its ticks; conversations stay',
    positionals: [1, 1],
    async run(context, [scheduleId]) {
      await context.client.schedules.delete(scheduleId!);
      context.note(`deleted ${scheduleId}\n`);
      if (context.json) context.out(`${JSON.stringify({ id: scheduleId, deleted: true })}\n`);
    },
  },
];
