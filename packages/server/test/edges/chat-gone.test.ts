import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { createServer, get } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import type { HostCall } from '../../src/edges/hosts/host-edge.ts';
import { abortWhenGone } from '../../src/edges/http/gone.ts';
import { createStreams } from '../../src/edges/http/stream.ts';
import { createChatCompletion } from '../../src/edges/openai/chat.ts';

/** The answer of a request whose client has left. */
async function abandoned(): Promise<ServerResponse> {
  const responses = Promise.withResolvers<ServerResponse>();
  const server = createServer((_request, response) => responses.resolve(response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const request = get({ host: '127.0.0.1', port, agent: false });
  request.on('error', () => undefined);
  const response = await responses.promise;
  request.destroy();
  await once(response, 'close');
  server.close();
  return response;
}

/** The runs that are cancelled for a chat completion whose client left while its message was being accepted. */
async function cancelledFor(
  stream: boolean,
  hasLeft: boolean,
): Promise<{ cancelled: string[]; open: number }> {
  const outgoing = await abandoned();
  const streams = createStreams({ heartbeatMs: 60_000, maxUnreadBytes: 1024 * 1024 });
  const cancelled: string[] = [];
  const call = {
    agent: { id: 'agent' },
    head: {},
    node: { outgoing },
    canStream: true,
    header: () => undefined,
    json: async () => ({ model: 'agent', stream, messages: [{ role: 'user', content: 'x' }] }),
    gone: () => abortWhenGone(outgoing, new AbortController()),
    hasLeft: () => hasLeft,
    stream: async (frame: never, begin: never) => streams.open(outgoing, {}, begin, frame),
    services: {
      runs: {
        send: async () => ({
          runId: 'run',
          conversationId: 'conversation',
          agentId: 'agent',
          replayed: false,
        }),
        outcome: async () => ({ run: { status: 'running' }, message: null }),
        cancel: async (_caller: unknown, runId: string) => void cancelled.push(runId),
      },
      events: { follow: async () => () => undefined },
    },
  };
  await createChatCompletion(call as unknown as HostCall);
  return { cancelled, open: streams.size };
}

test('a chat completion whose client left while its message was being accepted is cancelled, and holds no stream', async () => {
  for (const stream of [true, false])
    assert.deepEqual(await cancelledFor(stream, true), { cancelled: ['run'], open: 0 }, `stream: ${stream}`);
});

test('a chat completion that the service itself cut off, as it stops, goes on', async () => {
  for (const stream of [true, false])
    assert.deepEqual(await cancelledFor(stream, false), { cancelled: [], open: 0 }, `stream: ${stream}`);
});
