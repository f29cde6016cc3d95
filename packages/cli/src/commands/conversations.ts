import { everyItem } from '@berth/sdk';
import { text, type Command } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable } from '../print.ts';

export const conversationCommands: Command[] = [
  {
    name: 'conversations list',
    usage: '<agent>',
    summary: 'List the conversations of an agent, newest first',
    positionals: [1, 1],
    async run(context, [nameOrId]) {
      const agent = await findAgent(context, nameOrId!);
      const all = await Array.fromAsync(
        everyItem((query) => context.client.conversations.list(agent.id, query)),
      );
      printTable(
        context,
        all,
        ['id', 'title', 'last message'],
        all.map((conversation) => [conversation.id, conversation.title, conversation.lastMessageAt]),
      );
    },
  },
  {
    name: 'conversations fork',
    usage: '<conversation id> [--at MESSAGE] [--to AGENT] [--title TEXT]',
    summary:
      'Begin a conversation with what was said in another; --to takes the files along to another agent',
    options: { at: { type: 'string' }, to: { type: 'string' }, title: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [conversationId], values) {
      const messageId = text(values, 'at');
      const title = text(values, 'title');
      const to = text(values, 'to');
      const fork = await context.client.conversations.fork(conversationId!, {
        ...(messageId !== undefined && { messageId }),
        ...(title !== undefined && { title }),
        ...(to !== undefined && { toAgentId: (await findAgent(context, to)).id }),
      });
      printOne(context, fork, [
        ['id', fork.id],
        ['agent', fork.agentId],
        ['title', fork.title],
      ]);
    },
  },
];
