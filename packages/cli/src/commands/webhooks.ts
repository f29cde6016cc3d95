import type { InboundEvent } from '@berth/sdk';
import { exitCodes, text, UsageError, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable } from '../print.ts';
import { tailEvents } from '../tail-events.ts';

const columns = ['id', 'received', 'kind', 'state', 'reason'];
const cells = (event: InboundEvent) => [
  event.id,
  event.receivedAt,
  event.kind,
  event.state,
  event.reason ?? '',
];

/** `15m`, `2h`, `3d` ago, or a time as ISO 8601. */
export function readSince(given: string, nowMs: number): string {
  const ago = /^(\d{1,5})([mhd])$/.exec(given);
  const unitMs = { m: 60_000, h: 3_600_000, d: 86_400_000 }[ago?.[2] ?? ''] ?? 0;
  const ms = ago ? nowMs - Number(ago[1]) * unitMs : Date.parse(given);
  if (Number.isNaN(ms))
    throw new UsageError('--since takes 15m, 2h, 3d, or a time such as 2026-11-28T09:00:00Z');
  return new Date(ms).toISOString();
}

/** All of them, in as many calls as that takes. */
async function replayFailed(
  context: Context,
  agentId: string,
  since: string,
  channelId: string | undefined,
): Promise<number> {
  let replayed = 0;
  for (;;) {
    const which = { since, ...(channelId === undefined ? {} : { channelId }) };
    const told = await context.client.inboundEvents.replayFailed(agentId, which);
    replayed += told.replayed;
    // What is left when nothing could be queued is being worked on by somebody else.
    if (told.left > 0 && told.replayed > 0) continue;
    if (told.doubtful > 0) {
      context.note(
        `${told.doubtful} are left out, since their answer may have been sent; replay each by its id\n`,
      );
    }
    return replayed;
  }
}

export const webhookCommands: Command[] = [
  {
    name: 'webhooks list',
    usage: '<agent>',
    summary: 'List what came in for an agent, newest first, and what became of it',
    positionals: [1, 1],
    async run(context, [nameOrId]) {
      const agent = await findAgent(context, nameOrId!);
      const { items } = await context.client.inboundEvents.list(agent.id, { limit: 100 });
      printTable(context, items, columns, items.map(cells));
    },
  },
  {
    name: 'webhooks tail',
    usage: '<agent> [--channel ID]',
    summary: 'Show what comes in for an agent, and what becomes of it, until Ctrl-C',
    options: { channel: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [nameOrId], values) {
      const agent = await findAgent(context, nameOrId!);
      await tailEvents(context, agent.id, text(values, 'channel'));
      return exitCodes.cancelled;
    },
  },
  {
    name: 'webhooks trigger',
    usage: '<event> --channel ID [--text TEXT] [--answer]',
    summary:
      'Send a signed sample, such as slack.message, to a channel; its answer is sent only with --answer',
    options: { channel: { type: 'string' }, text: { type: 'string' }, answer: { type: 'boolean' } },
    positionals: [1, 1],
    async run(context, [event], values) {
      const channelId = text(values, 'channel');
      if (channelId === undefined) throw new UsageError('--channel is needed; see: berth channels list');
      const said = text(values, 'text');
      const tested = await context.client.channels.test(channelId, {
        event: event!,
        ...(said === undefined ? {} : { text: said }),
        ...(values['answer'] === true ? { answer: true } : {}),
      });
      if (!tested.verified && !context.json) {
        context.note('The provider alone can sign for this kind of channel, so no signature was checked.\n');
      }
      if (context.json) return context.out(`${JSON.stringify(tested, null, 2)}\n`);
      printOne(context, tested, [
        ['answered', `${tested.answer.status} ${tested.answer.body}`.trimEnd()],
        ...tested.events.map((made): [string, string] => [made.kind, `${made.id}  ${made.state}`]),
      ]);
    },
  },
  {
    name: 'webhooks replay',
    usage: '<event id> | <agent> --failed --since 2h [--channel ID]',
    summary: 'Work on an inbound event again, or on all that failed since a time',
    options: { failed: { type: 'boolean' }, since: { type: 'string' }, channel: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [given], values) {
      if (values['failed'] === true) {
        const since = readSince(text(values, 'since') ?? '', Date.now());
        const agent = await findAgent(context, given!);
        const replayed = await replayFailed(context, agent.id, since, text(values, 'channel'));
        printOne(context, { replayed }, [['replayed', replayed]]);
        return;
      }
      if (values['since'] !== undefined || values['channel'] !== undefined) {
        throw new UsageError('--since and --channel go with --failed');
      }
      const event = await context.client.inboundEvents.replay(given!);
      printOne(context, event, [
        ['id', event.id],
        ['state', event.state],
      ]);
    },
  },
];
