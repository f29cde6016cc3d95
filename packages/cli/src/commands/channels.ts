import { everyItem, type Channel, type ChannelCreate } from '@berth/sdk';
import { UsageError, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable } from '../print.ts';

function show(context: Context, channel: Channel, secret: string | null = null): void {
  printOne(context, secret === null ? channel : { ...channel, secret }, [
    ['id', channel.id],
    ['kind', channel.kind],
    ['name', channel.name],
    ['status', channel.status],
    ['webhook', channel.webhookUrl],
    ['credentials', channel.credentialsSet.join(' ')],
    ['last event', channel.lastEventAt ?? 'never'],
    ...(channel.lastError === null ? [] : [['last error', channel.lastError] as [string, string]]),
    ...(secret === null ? [] : [['secret', secret] as [string, string]]),
  ]);
}

/** What is secret comes on standard input, as JSON: on a command line others could read it. */
async function readInput(context: Context): Promise<Record<string, unknown>> {
  if (context.stdin.isTTY) {
    context.note('Type JSON, such as {"settings": {…}, "credentials": {…}}, then Enter and Ctrl-D: ');
  }
  let text = '';
  context.stdin.setEncoding('utf8');
  for await (const chunk of context.stdin) text += String(chunk);
  try {
    const value: unknown = text.trim() === '' ? {} : JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>;
  } catch {
    // Told below.
  }
  throw new UsageError('standard input must be a JSON object, such as {"settings": {}, "credentials": {}}');
}

export const channelCommands: Command[] = [
  {
    name: 'channels list',
    usage: '<agent>',
    summary: 'List the channels of an agent, newest first',
    positionals: [1, 1],
    async run(context, [nameOrId]) {
      const agent = await findAgent(context, nameOrId!);
      const found = await Array.fromAsync(
        everyItem((query) => context.client.channels.list(agent.id, query)),
      );
      printTable(
        context,
        found,
        ['id', 'kind', 'status', 'last event', 'name'],
        found.map((channel) => [
          channel.id,
          channel.kind,
          channel.status,
          channel.lastEventAt ?? 'never',
          channel.name,
        ]),
      );
    },
  },
  {
    name: 'channels create',
    usage: '<agent> <kind> [name]   (settings and credentials as JSON on standard input)',
    summary: 'Let Slack, mail, GitHub or another system reach an agent',
    positionals: [2, 3],
    async run(context, [nameOrId, kind, name]) {
      const agent = await findAgent(context, nameOrId!);
      const input = {
        ...(await readInput(context)),
        kind,
        ...(name === undefined ? {} : { name }),
      } as ChannelCreate;
      const { channel, secret } = await context.client.channels.create(agent.id, input);
      show(context, channel, secret);
      if (secret !== null) context.note('The secret is shown this once; enter it at the sender.\n');
    },
  },
  {
    name: 'channels update',
    usage: '<channel id>   (what changes, as JSON on standard input)',
    summary: 'Change the name, settings or credentials of a channel',
    positionals: [1, 1],
    async run(context, [channelId]) {
      show(context, await context.client.channels.update(channelId!, await readInput(context)));
    },
  },
  {
    name: 'channels pause',
    usage: '<channel id>',
    summary: 'Take nothing any more by a channel',
    positionals: [1, 1],
    async run(context, [channelId]) {
      show(context, await context.client.channels.pause(channelId!));
    },
  },
  {
    name: 'channels resume',
    usage: '<channel id>',
    summary: 'Take what comes by a channel again',
    positionals: [1, 1],
    async run(context, [channelId]) {
      show(context, await context.client.channels.resume(channelId!));
    },
  },
  {
    name: 'channels rotate-secret',
    usage: '<channel id>   (a secret that the provider gave, on standard input)',
    summary: 'Change the signing secret of a channel; the one before holds for a day',
    positionals: [1, 1],
    async run(context, [channelId]) {
      let value = '';
      context.stdin.setEncoding('utf8');
      if (!context.stdin.isTTY) for await (const chunk of context.stdin) value += String(chunk);
      value = value.trim();
      const { channel, secret } = await context.client.channels.rotateSecret(
        channelId!,
        value === '' ? {} : { value },
      );
      show(context, channel, secret);
    },
  },
  {
    name: 'channels delete',
    usage: '<channel id>',
    summary: 'Delete a channel and what came in by it; conversations stay',
    positionals: [1, 1],
    async run(context, [channelId]) {
      await context.client.channels.delete(channelId!);
      context.note(`deleted ${channelId}\n`);
      if (context.json) context.out(`${JSON.stringify({ id: channelId, deleted: true })}\n`);
    },
  },
];
