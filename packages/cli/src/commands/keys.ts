import { everyItem, type ApiKey } from '@berth/sdk';
import { text, UsageError, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printTable } from '../print.ts';

function table(context: Context, keys: ApiKey[]): void {
  printTable(
    context,
    keys,
    ['id', 'name', 'prefix', 'scope', 'binding', 'agent', 'last used'],
    keys.map((key) => [key.id, key.name, key.prefix, key.scope, key.binding, key.agentId, key.lastUsedAt]),
  );
}

export const keyCommands: Command[] = [
  {
    name: 'keys list',
    usage: '[agent]',
    summary: 'List the active keys of an agent, or of the organisation',
    positionals: [0, 1],
    async run(context, [nameOrId]) {
      const agent = nameOrId ? await findAgent(context, nameOrId) : null;
      const keys = agent
        ? everyItem((query) => context.client.apiKeys.listForAgent(agent.id, query))
        : everyItem(context.client.apiKeys.list);
      table(context, await Array.fromAsync(keys));
    },
  },
  {
    name: 'keys create',
    usage:
      '<name> [--agent AGENT] [--scope use|edit] [--expires ISO-TIME]   (on the host: berth host keys create)',
    summary: 'Make a key; its value is printed once',
    options: { agent: { type: 'string' }, scope: { type: 'string' }, expires: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [name], values) {
      const agentName = text(values, 'agent');
      const agent = agentName ? await findAgent(context, agentName) : null;
      const scope = text(values, 'scope') ?? 'use';
      if (scope !== 'use' && scope !== 'edit') throw new UsageError('--scope must be use or edit');
      const expiresAt = text(values, 'expires');
      const made =
        agent && scope === 'use' && expiresAt === undefined
          ? await context.client.apiKeys.createForAgent(agent.id, { name: name! })
          : await context.client.apiKeys.create({
              name: name!,
              scope,
              ...(agent ? { binding: 'agent-bound', agentId: agent.id } : { binding: 'org-bound' }),
              ...(expiresAt ? { expiresAt } : {}),
            });
      if (context.json) return context.out(`${JSON.stringify(made, null, 2)}\n`);
      context.note(`${made.key.scope} key ${made.key.id}; its value is shown this once:\n`);
      context.out(`${made.value}\n`);
    },
  },
  {
    name: 'keys revoke',
    usage: '<key id> [--agent AGENT]',
    summary: 'Revoke a key at once',
    options: { agent: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [keyId], values) {
      const agentName = text(values, 'agent');
      if (agentName)
        await context.client.apiKeys.revokeForAgent((await findAgent(context, agentName)).id, keyId!);
      else await context.client.apiKeys.revoke(keyId!);
      context.note(`revoked ${keyId}\n`);
      if (context.json) context.out(`${JSON.stringify({ id: keyId, revoked: true })}\n`);
    },
  },
];
