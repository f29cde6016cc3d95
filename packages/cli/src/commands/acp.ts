import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { Bridge } from '../acp/bridge.ts';
import { keepConnected } from '../acp/connection.ts';
import { resolveLocalhostNames } from '../acp/localhost-names.ts';
import { exitCodes, type Command } from '../command.ts';
import { findAgent } from '../find-agent.ts';

/** A client that closed its side may still want the answers to what it asked last. */
const LAST_ANSWERS_MS = 1_000;

export const acp: Command = {
  name: 'acp',
  usage: '<agent>',
  summary: 'Speak the Agent Client Protocol on standard input and output, for editors',
  positionals: [1, 1],
  async run(context, [nameOrId]) {
    const agent = await findAgent(context, nameOrId!);
    const url = new URL('/acp', agent.url);
    url.protocol = url.protocol.replace('http', 'ws');
    resolveLocalhostNames();
    const bridge = new Bridge((message) => context.out(`${JSON.stringify(message)}\n`));
    const left = new AbortController();
    context.signal.addEventListener('abort', () => left.abort());
    void readClient(context.stdin, bridge).then(() => left.abort());
    const { key: apiKey, note } = context;
    const end = await keepConnected(bridge, { url: url.href, apiKey, note, signal: left.signal });
    if (end === 'left') return context.signal.aborted ? exitCodes.cancelled : exitCodes.ok;
    // A WebSocket tells no status; the key and the agent were found good a moment ago.
    if (end === 'refused')
      context.note(
        `berth: no connection to ${url.href}; does the name lead to the service, and may it upgrade?\n`,
      );
    return exitCodes.failed;
  },
};

/** Resolves when the client has closed its side. */
async function readClient(stdin: NodeJS.ReadableStream, bridge: Bridge): Promise<void> {
  for await (const line of createInterface({ input: stdin, crlfDelay: Infinity })) bridge.takeLine(line);
  const untilMs = performance.now() + LAST_ANSWERS_MS;
  while (!bridge.isIdle && performance.now() < untilMs) await delay(10);
}
