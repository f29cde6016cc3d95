import { createServer } from 'node:http';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { scriptIn, tokenAt } from './script.ts';

/**
 * A model provider that speaks Anthropic Messages and answers by the script in the message; a process of its own, so
 * that its work is not counted. It listens on loopback and, for the floor, on the Unix socket of its first argument.
 */

const encode = (data: { type: string }): string => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
const delta = (text: string): string =>
  encode({
    type: 'content_block_delta',
    index: 0,
    delta: { type: 'text_delta', text },
  } as { type: string });

const HEAD =
  encode({
    type: 'message_start',
    message: {
      id: 'msg_bench',
      type: 'message',
      role: 'assistant',
      model: 'bench',
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: 10, output_tokens: 1 },
    },
  } as { type: string }) +
  encode({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } } as {
    type: string;
  });

const tail = (tokens: number): string =>
  encode({ type: 'content_block_stop', index: 0 } as { type: string }) +
  encode({
    type: 'message_delta',
    delta: { stop_reason: 'end_turn', stop_sequence: null },
    usage: { output_tokens: tokens },
  } as { type: string }) +
  encode({ type: 'message_stop' });

const answer: RequestListener = (request, response) => {
  void readAll(request).then((body) => {
    const { tokens, firstMs, gapMs } = scriptIn(body);
    const begin = () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      if (gapMs === 0) {
        const text = Array.from({ length: tokens }, (_, index) => delta(tokenAt(_, index))).join('');
        response.end(HEAD + text + tail(tokens));
      } else {
        response.write(HEAD + delta(tokenAt(null, 0)));
        stream(response, tokens, gapMs);
      }
    };
    if (firstMs === 0) begin();
    else setTimeout(begin, firstMs);
  });
};

function stream(response: ServerResponse, tokens: number, gapMs: number): void {
  let sent = 1;
  const timer = setInterval(() => {
    if (response.destroyed) return clearInterval(timer);
    response.write(delta(tokenAt(null, sent)));
    sent += 1;
    if (sent < tokens) return;
    clearInterval(timer);
    response.end(tail(tokens));
  }, gapMs);
}

async function readAll(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

const byPort = createServer({ keepAliveTimeout: 120_000 }, answer);
const bySocket = createServer({ keepAliveTimeout: 120_000 }, answer);
bySocket.listen(process.argv[2]!, () => {
  byPort.listen(0, '127.0.0.1', 2048, () => {
    process.send!({ port: (byPort.address() as AddressInfo).port });
  });
});
// The bench may be killed: nothing of it stays.
process.once('disconnect', () => process.exit(0));
