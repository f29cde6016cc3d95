import { everyItem } from '@berth/sdk';
import { UsageError, type Command } from '../command.ts';
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
        ['key'],
        secrets.map((secret) => [secret.key]),
      );
    },
  },
  {
    name: 'secrets set',
    usage: '<agent> <NAME>   (the value is read from standard input)',
    summary: 'Set or rotate a secret',
    positionals: [2, 2],
    async run(context, [nameOrId, key]) {
      const agent = await findAgent(context, nameOrId!);
      if (context.stdin.isTTY) context.note('Type the value, then Enter and Ctrl-D: ');
      let value = '';
      context.stdin.setEncoding('utf8');
      for await (const chunk of context.stdin) value += String(chunk);
      // What a shell's echo or a person's Enter adds is not part of the value.
      value = value.replace(/\r?\n$/, '');
      if (value === '') throw new UsageError('the value on standard input is empty');
      await context.client.secrets.set(agent.id, key!, { value });
      context.note(`set ${key}; it reaches the sandbox from the next turn on\n`);
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
