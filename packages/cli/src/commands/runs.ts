import { setTimeout as delay } from 'node:timers/promises';
import { isAway, type Event, type Run } from '@berth/sdk';
import { text, type Command, type Context, exitCodes } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable, safe } from '../print.ts';
import { noteOf } from '../show-events.ts';

function show(context: Context, run: Run): void {
  printOne(context, run, [
    ['id', run.id],
    ['status', run.status],
    ['conversation', run.conversationId],
    ['deployment', run.deploymentId],
    ['attempt', run.attempt],
    ['error', run.error ? `${run.error.error} (${run.error.code})` : null],
    ['input tokens', run.usage.inputTokens],
    ['output tokens', run.usage.outputTokens],
    ['cost', `$${run.usage.cost}`],
    ['created', run.createdAt],
    ['started', run.startedAt],
    ['ended', run.endedAt],
  ]);
}

function printEvent(context: Context, event: Event): void {
  if (context.json) return context.out(`${JSON.stringify(event)}\n`);
  const data = event.data as Record<string, string>;
  const detail = noteOf(event.type, data) ?? data['content'] ?? data['text'] ?? '';
  context.out(
    `${event.at} ${(data['runId'] ?? '').slice(-8)} ${event.type} ${safe(detail)}`.trimEnd() + '\n',
  );
}

const LOOK_EVERY_MS = 1_000;

/** Follows every conversation of an agent that is there or appears, through restarts, until the signal aborts. */
async function followAgent(
  context: Context,
  agentId: string,
  onEvent: (event: Event) => void,
): Promise<void> {
  const { client, signal, note } = context;
  /** By conversation: the last seq that was shown, and whether it is followed now. */
  const places = new Map<string, { after: number; isFollowed: boolean }>();
  async function follow(
    conversationId: string,
    place: { after: number; isFollowed: boolean },
  ): Promise<void> {
    place.isFollowed = true;
    try {
      for await (const event of client.conversations.follow(conversationId, { after: place.after, signal })) {
        place.after = event.seq;
        onEvent(event);
      }
    } catch (error) {
      // The next look takes it up again where it was, if it is still there.
      note(`${conversationId}: ${(error as Error).message}\n`);
    }
    place.isFollowed = false;
  }
  for (let looks = 0; !signal.aborted; looks += 1) {
    try {
      const { items } = await client.conversations.list(agentId, { limit: 20 });
      if (looks === 0 && items.length === 0) note('no conversation yet; waiting\n');
      // Oldest first, so that the events of the past come in about their order.
      for (const { id } of items.toReversed()) {
        const place = places.get(id) ?? { after: 0, isFollowed: false };
        places.set(id, place);
        if (!place.isFollowed) void follow(id, place);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!isAway(error) || looks === 0) throw error;
      note(`${error.message} Trying again.\n`);
    }
    await delay(LOOK_EVERY_MS, undefined, { signal }).catch(() => undefined);
  }
}

export const runCommands: Command[] = [
  {
    name: 'runs list',
    usage: '<agent> [--limit N]',
    summary: 'List the runs of an agent, newest first',
    options: { limit: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [nameOrId], values) {
      const agent = await findAgent(context, nameOrId!);
      const { items } = await context.client.runs.list(agent.id, {
        limit: Number(text(values, 'limit') ?? 20),
      });
      printTable(
        context,
        items,
        ['id', 'status', 'conversation', 'created', 'error'],
        items.map((run) => [run.id, run.status, run.conversationId, run.createdAt, run.error?.code]),
      );
    },
  },
  {
    name: 'runs show',
    usage: '<run id>',
    summary: 'Show one run',
    positionals: [1, 1],
    run: async (context, [runId]) => show(context, await context.client.runs.get(runId!)),
  },
  {
    name: 'runs cancel',
    usage: '<run id>',
    summary: 'Cancel a run',
    positionals: [1, 1],
    run: async (context, [runId]) => show(context, await context.client.runs.cancel(runId!)),
  },
  {
    name: 'logs',
    usage: '<agent> [-f] [--run ID] [--conversation ID]',
    summary: 'Show what happened in an agent’s latest conversation, a conversation or a run; -f goes on',
    options: {
      follow: { type: 'boolean', short: 'f' },
      run: { type: 'string' },
      conversation: { type: 'string' },
    },
    positionals: [0, 1],
    async run(context, [nameOrId], values) {
      const print = (event: Event) => printEvent(context, event);
      const runId = text(values, 'run');
      if (runId) {
        for await (const event of context.client.runs.follow(runId, { signal: context.signal })) print(event);
        return context.signal.aborted ? exitCodes.cancelled : exitCodes.ok;
      }
      const agent = nameOrId ? await findAgent(context, nameOrId) : null;
      const named = text(values, 'conversation');
      if (values['follow'] && agent && !named) {
        await followAgent(context, agent.id, print);
        return exitCodes.cancelled;
      }
      const conversation =
        named ??
        (agent ? (await context.client.conversations.list(agent.id, { limit: 1 })).items[0]?.id : undefined);
      if (!conversation) {
        context.note(agent ? 'no conversation yet\n' : 'usage: berth logs <agent> [-f]\n');
        return agent ? exitCodes.ok : exitCodes.failed;
      }
      if (values['follow']) {
        const events = context.client.conversations.follow(conversation, { signal: context.signal });
        for await (const event of events) print(event);
        return exitCodes.cancelled;
      }
      for await (const event of context.client.conversations.events(conversation)) print(event);
    },
  },
];
