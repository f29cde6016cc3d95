import {
  everyItem,
  type WebhookDelivery,
  type WebhookEndpoint,
  type WebhookEndpointCreate,
  type WebhookEndpointUpdate,
} from '@berth/sdk';
import { text, UsageError, type Command, type Context, type Values } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable } from '../print.ts';

function show(context: Context, endpoint: WebhookEndpoint, secret: string | null = null): void {
  printOne(context, secret === null ? endpoint : { ...endpoint, secret }, [
    ['id', endpoint.id],
    ['name', endpoint.name],
    ['url', endpoint.url],
    ['events', endpoint.events.join(' ')],
    ['agent', endpoint.agentId ?? 'all'],
    ['status', endpoint.status],
    ...(endpoint.disabledReason === null ? [] : [['because', endpoint.disabledReason] as [string, string]]),
    ['last taken', endpoint.lastSuccessAt ?? 'never'],
    ...(endpoint.failingSince === null ? [] : [['failing since', endpoint.failingSince] as [string, string]]),
    ...(secret === null ? [] : [['secret', secret] as [string, string]]),
  ]);
}

const deliveryCells = (one: WebhookDelivery): string[] => [
  one.id,
  one.at,
  one.type,
  one.state,
  String(one.attempts),
  one.nextAttemptAt ?? '',
  one.lastError ?? '',
];
const deliveryNames = ['id', 'at', 'type', 'state', 'attempts', 'next attempt', 'last error'];

const settings = {
  name: { type: 'string' },
  url: { type: 'string' },
  events: { type: 'string' },
  agent: { type: 'string' },
} as const;

async function readSettings(context: Context, flags: Values): Promise<WebhookEndpointUpdate> {
  const agent = text(flags, 'agent');
  const given = {
    name: text(flags, 'name'),
    url: text(flags, 'url'),
    events: text(flags, 'events')?.split(','),
    agentId: agent === undefined ? undefined : agent === 'all' ? null : (await findAgent(context, agent)).id,
  };
  return Object.fromEntries(
    Object.entries(given).filter(([, value]) => value !== undefined),
  ) as WebhookEndpointUpdate;
}

export const webhookEndpointCommands: Command[] = [
  {
    name: 'webhook-endpoints list',
    usage: '',
    summary: 'List where the organisation is told of what happens, newest first',
    positionals: [0, 0],
    async run(context) {
      const found = await Array.fromAsync(everyItem((query) => context.client.webhookEndpoints.list(query)));
      printTable(
        context,
        found,
        ['id', 'status', 'events', 'url', 'name'],
        found.map((one) => [one.id, one.status, one.events.join(' '), one.url, one.name]),
      );
    },
  },
  {
    name: 'webhook-endpoints create',
    usage: '<url> <event…> [--name NAME] [--agent AGENT]',
    summary: 'Be told of events, such as run.completed run.failed, or "*"',
    options: { name: { type: 'string' }, agent: { type: 'string' } },
    positionals: [2, 50],
    async run(context, [url, ...events], flags) {
      const input = { ...(await readSettings(context, flags)), url, events } as WebhookEndpointCreate;
      const { endpoint, secret } = await context.client.webhookEndpoints.create(input);
      show(context, endpoint, secret);
      context.note('The secret is shown this once; verify the signature of what comes with it.\n');
    },
  },
  {
    name: 'webhook-endpoints show',
    usage: '<endpoint id>',
    summary: 'Show a webhook endpoint',
    positionals: [1, 1],
    run: async (context, [id]) => show(context, await context.client.webhookEndpoints.get(id!)),
  },
  {
    name: 'webhook-endpoints update',
    usage: '<endpoint id> [--url URL] [--events EVENT,EVENT] [--name NAME] [--agent AGENT|all]',
    summary: 'Change a webhook endpoint',
    options: settings,
    positionals: [1, 1],
    async run(context, [id], flags) {
      const patch = await readSettings(context, flags);
      show(context, await context.client.webhookEndpoints.update(id!, patch));
    },
  },
  {
    name: 'webhook-endpoints enable',
    usage: '<endpoint id>',
    summary: 'Tell it of what happens again, and of what was held',
    positionals: [1, 1],
    run: async (context, [id]) => show(context, await context.client.webhookEndpoints.enable(id!)),
  },
  {
    name: 'webhook-endpoints disable',
    usage: '<endpoint id>',
    summary: 'Tell it of nothing for a while',
    positionals: [1, 1],
    run: async (context, [id]) => show(context, await context.client.webhookEndpoints.disable(id!)),
  },
  {
    name: 'webhook-endpoints rotate-secret',
    usage: '<endpoint id>',
    summary: 'Change the signing secret; the one before signs too for a day',
    positionals: [1, 1],
    async run(context, [id]) {
      const { endpoint, secret } = await context.client.webhookEndpoints.rotateSecret(id!);
      show(context, endpoint, secret);
    },
  },
  {
    name: 'webhook-endpoints test',
    usage: '<endpoint id>',
    summary: 'Send it a test event',
    positionals: [1, 1],
    async run(context, [id]) {
      const delivery = await context.client.webhookEndpoints.test(id!);
      printTable(context, [delivery], deliveryNames, [deliveryCells(delivery)]);
    },
  },
  {
    name: 'webhook-endpoints deliveries',
    usage: '<endpoint id> [--state pending|delivered|failed]',
    summary: 'List what it was told of, newest first',
    options: { state: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [id], flags) {
      const state = text(flags, 'state') as WebhookDelivery['state'] | undefined;
      const query = { limit: 100, ...(state === undefined ? {} : { state }) };
      const { items } = await context.client.webhookEndpoints.deliveries(id!, query);
      printTable(context, items, deliveryNames, items.map(deliveryCells));
    },
  },
  {
    name: 'webhook-endpoints delivery',
    usage: '<endpoint id> <delivery id>',
    summary: 'Show the attempts of a delivery, and what the receiver answered',
    positionals: [2, 2],
    async run(context, [id, deliveryId]) {
      const found = await context.client.webhookEndpoints.delivery(id!, deliveryId!);
      if (context.json) return void context.out(`${JSON.stringify(found)}\n`);
      printTable(
        context,
        found.attempts,
        ['number', 'at', 'ms', 'status', 'error', 'answer'],
        found.attempts.map((one) => [
          String(one.number),
          one.at,
          String(one.latencyMs),
          String(one.status ?? ''),
          one.error ?? '',
          JSON.stringify(one.answer ?? '').slice(0, 80),
        ]),
      );
    },
  },
  {
    name: 'webhook-endpoints retry',
    usage: '<endpoint id> <delivery id> | <endpoint id> --since TIME',
    summary: 'Send an event again, or all that failed since then',
    options: { since: { type: 'string' } },
    positionals: [1, 2],
    async run(context, [id, deliveryId], flags) {
      const since = text(flags, 'since');
      if ((deliveryId === undefined) === (since === undefined))
        throw new UsageError('give a delivery id, or --since with a time such as 2026-11-28T00:00:00Z');
      if (deliveryId !== undefined) {
        const delivery = await context.client.webhookEndpoints.retry(id!, deliveryId);
        return printTable(context, [delivery], deliveryNames, [deliveryCells(delivery)]);
      }
      const retried = await context.client.webhookEndpoints.retrySince(id!, since!);
      printOne(context, { retried }, [['retried', String(retried)]]);
    },
  },
  {
    name: 'webhook-endpoints delete',
    usage: '<endpoint id>',
    summary: 'Delete a webhook endpoint, with what was not sent yet',
    positionals: [1, 1],
    async run(context, [id]) {
      await context.client.webhookEndpoints.delete(id!);
      context.note(`deleted ${id}\n`);
      if (context.json) context.out(`${JSON.stringify({ id, deleted: true })}\n`);
    },
  },
];
