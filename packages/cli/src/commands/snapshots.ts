import { everyItem, type Snapshot } from '@berth/sdk';
import { text, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable } from '../print.ts';

function show(context: Context, snapshot: Snapshot): void {
  printOne(context, snapshot, [
    ['id', snapshot.id],
    ['name', snapshot.name],
    ['size', snapshot.sizeBytes],
    ['stored', snapshot.storedBytes],
    ['created', snapshot.createdAt],
  ]);
}

export const snapshotCommands: Command[] = [
  {
    name: 'sandbox snapshot',
    usage: '<agent> [name]',
    summary: 'Keep all files of an agent as they are now',
    positionals: [1, 2],
    async run(context, [nameOrId, name]) {
      const agent = await findAgent(context, nameOrId!);
      show(
        context,
        await context.client.sandboxes.snapshots.create(agent.id, name === undefined ? {} : { name }),
      );
    },
  },
  {
    name: 'sandbox snapshots',
    usage: '<agent>',
    summary: 'List the snapshots of an agent, newest first',
    positionals: [1, 1],
    async run(context, [nameOrId]) {
      const agent = await findAgent(context, nameOrId!);
      const found = await Array.fromAsync(
        everyItem((query) => context.client.sandboxes.snapshots.list(agent.id, query)),
      );
      printTable(
        context,
        found,
        ['id', 'created', 'size', 'stored', 'name'],
        found.map((s) => [s.id, s.createdAt, s.sizeBytes, s.storedBytes, s.name]),
      );
    },
  },
  {
    name: 'sandbox restore',
    usage: '<agent> <snapshot id> [--to AGENT]',
    summary: 'Replace the files of an agent (or of another one) by those of a snapshot',
    options: { to: { type: 'string' } },
    positionals: [2, 2],
    async run(context, [nameOrId, snapshotId], values) {
      const agent = await findAgent(context, nameOrId!);
      const to = text(values, 'to');
      const input = to === undefined ? {} : { toAgentId: (await findAgent(context, to)).id };
      show(context, await context.client.sandboxes.snapshots.restore(agent.id, snapshotId!, input));
    },
  },
  {
    name: 'sandbox snapshots delete',
    usage: '<agent> <snapshot id>',
    summary: 'Delete a snapshot',
    positionals: [2, 2],
    async run(context, [nameOrId, snapshotId]) {
      const agent = await findAgent(context, nameOrId!);
      await context.client.sandboxes.snapshots.delete(agent.id, snapshotId!);
      context.note(`deleted ${snapshotId}\n`);
    },
  },
];
