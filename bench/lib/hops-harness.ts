import { Agent, request as httpRequest } from 'node:http';
import type { HopsAsked, HopsTold } from './hops-service.ts';

/**
 * Stands in for the harness: a line with a message comes in, the model is asked for it over the Unix socket of the first
 * argument, a line goes out for each piece of its text.
 */

const agent = new Agent({ keepAlive: true, maxFreeSockets: 64 });
const say = (told: HopsTold) => process.stdout.write(`${JSON.stringify(told)}\n`);

function ask({ id, content }: HopsAsked): void {
  const body = JSON.stringify({ messages: [{ role: 'user', content }] });
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  const target = { socketPath: process.argv[2]!, method: 'POST', path: '/v1/messages', agent, headers };
  const asked = httpRequest(target, (response) => {
    let rest = '';
    response.setEncoding('utf8').on('data', (chunk: string) => {
      const events = (rest + chunk).split('\n\n');
      rest = events.pop() ?? '';
      const text = events.map(textOf).join('');
      if (text !== '') say({ id, text });
    });
    response.on('end', () => say({ id, text: null }));
  });
  asked.end(body);
}

function textOf(event: string): string {
  if (!event.startsWith('event: content_block_delta\n')) return '';
  const { delta } = JSON.parse(event.slice(event.indexOf('data: ') + 6)) as { delta: { text: string } };
  return delta.text;
}

let rest = '';
process.stdin.setEncoding('utf8').on('data', (chunk: string) => {
  const lines = (rest + chunk).split('\n');
  rest = lines.pop() ?? '';
  for (const line of lines) ask(JSON.parse(line) as HopsAsked);
});
process.stdin.once('end', () => process.exit(0));
