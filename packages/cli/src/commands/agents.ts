import { everyItem, type Agent } from '@berth/sdk';
import { text, type Command, type Context, UsageError, type Values } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable } from '../print.ts';

function show(context: Context, agent: Agent): void {
  printOne(context, agent, [
    ['id', agent.id],
    ['name', agent.name],
    ['description', agent.description],
    ['model', agent.model],
    ['url', agent.url],
    ['gitUrl', agent.gitUrl],
    ['deployment', agent.deploymentId],
    ['allowedOrigins', agent.allowedOrigins.join(', ') || null],
    ['created', agent.createdAt],
  ]);
}

const fields = {
  name: { type: 'string' },
  description: { type: 'string' },
  model: { type: 'string' },
  'git-url': { type: 'string' },
} as const;

interface Input {
  name?: string;
  description?: string;
  model?: string;
  gitUrl?: string;
  allowedOrigins?: string[];
}

function input(values: Values): Input {
  const given = {
    name: text(values, 'name'),
    description: text(values, 'description'),
    model: text(values, 'model'),
    gitUrl: text(values, 'git-url'),
    // An empty list takes all of them away.
    allowedOrigins: text(values, 'allow-origins')
      ?.split(',')
      .map((origin) => origin.trim())
      .filter(Boolean),
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

export const agentCommands: Command[] = [
  {
    name: 'agents create',
    usage: '<name> [--description TEXT] [--model PROVIDER/MODEL] [--git-url URL]',
    summary: 'Create an agent',
    options: fields,
    positionals: [0, 1],
    async run(context, [name], values) {
      const given = { ...input(values), ...(name === undefined ? {} : { name }) };
      if (!given.name) throw new UsageError('an agent needs a name: berth agents create <name>');
      const agent = await context.client.agents.create({ ...given, name: given.name });
      show(context, agent);
      context.note(`next: berth deploy ${agent.id}   or: berth chat ${agent.id}\n`);
    },
  },
  {
    name: 'agents list',
    usage: '',
    summary: 'List agents, newest first',
    positionals: [0, 0],
    async run(context) {
      const agents = await Array.fromAsync(everyItem(context.client.agents.list));
      printTable(
        context,
        agents,
        ['id', 'name', 'model', 'created'],
        agents.map((a) => [a.id, a.name, a.model, a.createdAt]),
      );
    },
  },
  {
    name: 'agents show',
    usage: '<agent>',
    summary: 'Show one agent',
    positionals: [1, 1],
    run: async (context, [agent]) => show(context, await findAgent(context, agent!)),
  },
  {
    name: 'agents update',
    usage:
      '<agent> [--name NAME] [--description TEXT] [--model PROVIDER/MODEL] [--git-url URL] [--allow-origins LIST]',
    summary: 'Change an agent',
    options: { ...fields, 'allow-origins': { type: 'string' } },
    positionals: [1, 1],
    async run(context, [nameOrId], values) {
      const patch = input(values);
      if (Object.keys(patch).length === 0)
        throw new UsageError('nothing to change; see: berth agents update --help');
      const agent = await findAgent(context, nameOrId!);
      show(context, await context.client.agents.update(agent.id, patch));
    },
  },
  {
    name: 'agents delete',
    usage: '<agent> --yes',
    summary: 'Delete an agent with its repository, workspace, keys and secrets',
    options: { yes: { type: 'boolean' } },
    positionals: [1, 1],
    async run(context, [nameOrId], values) {
      const agent = await findAgent(context, nameOrId!);
      if (!values['yes'])
        throw new UsageError(`this deletes "${agent.name}" (${agent.id}) for good; say --yes`);
      await context.client.agents.delete(agent.id);
      context.note(`deleted ${agent.id}\n`);
      if (context.json) context.out(`${JSON.stringify({ id: agent.id, deleted: true })}\n`);
    },
  },
];
