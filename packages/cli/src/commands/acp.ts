import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { Bridge } from '../acp/bridge.ts';
import { keepConnected } from '../acp/connection.ts';
import { resolveLocalhostNames } from '../acp/localhost-names.ts';
import { exitCodes, type Command } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { safe } from '../print.ts';

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
    if (end === 'refused') {
      const reason = await refusalOf(url.href.replace(/^ws/, 'http'), apiKey);
      const guess = 'does the name lead to the service, and may it upgrade?';
      note(`berth: no connection to ${url.href}; ${safe(reason ?? guess)}\n`);
    }
    return exitCodes.failed;
  },
};

/** A WebSocket tells neither status nor text of a refusal; the same call without an upgrade does. Null: it is let in. */
async function refusalOf(url: string, apiKey: string): Promise<string | null> {
  try {
    const answer = await fetch(url, { headers: { authorization: `Bearer ${apiKey}` }, redirect: 'error' });
    const { error } = (await answer.json()) as { error?: { message?: unknown } };
    // 400 is what it is for: it names no connection.
    return answer.status === 400 || typeof error?.message !== 'string' ? null : error.message;
  } catch {
    return null;
  }
}

/** Resolves when the client has closed its side. */
async function readClient(stdin: NodeJS.ReadableStream, bridge: Bridge): Promise<void> {
  for await (const line of createInterface({ input: stdin, crlfDelay: Infinity })) bridge.takeLine(line);
  const untilMs = performance.now() + LAST_ANSWERS_MS;
  while (!bridge.isIdle && performance.now() < untilMs) await delay(10);
}
