import { createClient } from '@berth/sdk';
import { text, type Command, UsageError } from '../command.ts';
import { printOne } from '../print.ts';
import { writeSettings } from '../settings.ts';

async function readAll(stream: NodeJS.ReadableStream): Promise<string> {
  let all = '';
  stream.setEncoding('utf8');
  for await (const chunk of stream) all += String(chunk);
  return all;
}

export const login: Command = {
  name: 'login',
  usage: '[--url URL]   (the key is read from standard input or BERTH_API_KEY)',
  summary: 'Store the address and a key for later commands',
  options: { url: { type: 'string' } },
  positionals: [0, 0],
  async run(context, _args, values) {
    // Never an argument: a command line can be read by every user of the machine.
    if (!context.key && context.stdin.isTTY) context.note('Paste the key, then Enter and Ctrl-D: ');
    const key = context.key || (await readAll(context.stdin)).trim();
    if (!/^svc_live_[0-9A-Za-z]+$/.test(key)) throw new UsageError('a key begins with svc_live_');
    const url = text(values, 'url') ?? context.url;
    if (!URL.canParse(url)) throw new UsageError(`--url must be an address such as http://localhost:8080`);
    const limits = await createClient({ baseUrl: url, apiKey: key }).limits();
    const file = writeSettings(context.env, { url, key });
    context.note(`stored in ${file}\n`);
    if (context.json) context.out(`${JSON.stringify({ url, limits }, null, 2)}\n`);
  },
};

export const whoami: Command = {
  name: 'whoami',
  usage: '',
  summary: 'Show the address, the key and what it may do',
  positionals: [0, 0],
  async run(context) {
    const limits = await context.client.limits();
    const { key } = limits;
    printOne(context, { url: context.url, ...limits }, [
      ['url', context.url],
      ['key', `${context.key.slice(0, 15)}…`],
      ['scope', key.scope],
      ['binding', key.binding],
      ['agent', key.agentId],
    ]);
  },
};
