import { everyItem, type Secret } from '@berth/sdk';
import { UsageError, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printTable } from '../print.ts';

export const secretCommands: Command[] = [
  {
    name: 'secrets list',
    usage: '<agent>',
    summary: 'List the names of an agent’s secrets',
    positionals: [1, 1],
    async run(context, [nameOrId]) {
      const agent = await findAgent(context, nameOrId!);
      const secrets = await Array.fromAsync(
        everyItem((query) => context.client.secrets.list(agent.id, query)),
      );
      printTable(
        context,
        secrets,
        ['key', 'kind', 'hosts'],
        secrets.map((secret) => [secret.key, secret.kind, secret.hosts.join(' ')]),
      );
    },
  },
  {
    name: 'secrets set',
    usage: '<agent> <NAME> [--host api.example.com]… [--env]   (the value is read from standard input)',
    summary:
      'Set or rotate a secret; without --host the agent can read a new one, --env opens an old one to it',
    positionals: [2, 2],
    options: { host: { type: 'string', multiple: true }, env: { type: 'boolean' } },
    async run(context, [nameOrId, key], values) {
      const hosts = values['env'] ? [] : (values['host'] as string[] | undefined);
      if (values['env'] && values['host']) throw new UsageError('--env and --host exclude each other');
      const agent = await findAgent(context, nameOrId!);
      if (context.stdin.isTTY) context.note('Type the value, then Enter and Ctrl-D: ');
      let value = '';
      context.stdin.setEncoding('utf8');
      for await (const chunk of context.stdin) value += String(chunk);
      // What a shell's echo or a person's Enter adds is not part of the value.
      value = value.replace(/\r?\n$/, '');
      if (value === '') throw new UsageError('the value on standard input is empty');
      await context.client.secrets.set(agent.id, key!, hosts ? { value, hosts } : { value });
      context.note(`set ${key}; ${noteOf(await kept(context, agent.id, key!))}\n`);
      if (context.json) context.out(`${JSON.stringify({ key })}\n`);
    },
  },
  {
    name: 'secrets delete',
    usage: '<agent> <NAME>',
    summary: 'Delete a secret',
    positionals: [2, 2],
    async run(context, [nameOrId, key]) {
      const agent = await findAgent(context, nameOrId!);
      await context.client.secrets.delete(agent.id, key!);
      context.note(`deleted ${key}\n`);
      if (context.json) context.out(`${JSON.stringify({ key, deleted: true })}\n`);
    },
  },
];

/** What the service has made of it: its name or its earlier hosts decide too. */
async function kept(context: Context, agentId: string, key: string): Promise<Secret | null> {
  for await (const secret of everyItem((query) => context.client.secrets.list(agentId, query)))
    if (secret.key === key) return secret;
  return null;
}

function noteOf(secret: Secret | null): string {
  switch (secret?.kind) {
    case undefined:
      return 'it was deleted since';
    case 'withheld':
      return 'the service itself uses it, and it never enters the sandbox';
    case 'env':
      return 'the agent can read the value from its next turn on';
    case 'brokered': {
      const { hosts } = secret!;
      const only = `${hosts.join(', ')} ${hosts.length === 1 ? 'gets' : 'get'}`;
      return `the sandbox holds a placeholder, and only ${only} the value; the agent must be let there (berth egress show)`;
    }
  }
}
