import { createInterface } from 'node:readline';
import { text, type Command, type Context, exitCodes } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { showTurn } from '../show-events.ts';
import type { Event } from '@berth/sdk';

interface Talk {
  agentId: string;
  conversationId: string | null;
}

/** Sends one message and shows the turn; keeps the conversation for the next one. Ctrl-C cancels the run. */
async function turn(context: Context, talk: Talk, content: string): Promise<number> {
  let runId: string | undefined;
  let isUnwanted = false;
  const cancel = () => {
    isUnwanted = true;
    if (runId) void context.client.runs.cancel(runId).catch(() => {});
  };
  process.on('SIGINT', cancel);
  async function* events(): AsyncGenerator<Event> {
    for await (const event of context.client.chat.stream({ ...talk, content })) {
      const data = event.data as { runId?: string; conversationId?: string };
      if (runId === undefined && data.runId !== undefined) {
        runId = data.runId;
        // It was asked for before anybody knew of a run.
        if (isUnwanted) cancel();
      }
      if (event.type === 'message.created') talk.conversationId = data.conversationId ?? talk.conversationId;
      yield event;
    }
  }
  try {
    const end = await showTurn(context, events());
    if (end === 'run.completed') return exitCodes.ok;
    return end === 'run.cancelled' ? exitCodes.cancelled : exitCodes.failed;
  } finally {
    process.off('SIGINT', cancel);
  }
}

export const chat: Command = {
  name: 'chat',
  usage: '<agent> [message] [--conversation ID]',
  summary: 'Talk with an agent: one message, a line each from standard input, or interactively',
  options: { conversation: { type: 'string' } },
  positionals: [1, 2],
  async run(context, [nameOrId, message], values) {
    const agent = await findAgent(context, nameOrId!);
    const talk: Talk = { agentId: agent.id, conversationId: text(values, 'conversation') ?? null };
    if (message !== undefined) {
      const code = await turn(context, talk, message);
      context.note(`conversation ${talk.conversationId}\n`);
      return code;
    }
    const interactive = context.stdin.isTTY === true;
    const lines = createInterface({
      input: context.stdin,
      ...(interactive ? { output: process.stderr, prompt: '» ' } : {}),
    });
    let code: number = exitCodes.ok;
    if (interactive) {
      context.note(`${agent.name} (${agent.model}). An empty line does nothing, Ctrl-D ends.\n`);
      lines.prompt();
    }
    for await (const line of lines) {
      if (line.trim() !== '') code = await turn(context, talk, line);
      if (interactive) lines.prompt();
    }
    if (talk.conversationId) context.note(`conversation ${talk.conversationId}\n`);
    return code;
  },
};
