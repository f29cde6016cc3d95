import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { fakeService, frame, json, type Seen } from '../../sdk/test/fake-service.ts';
import { runBerth } from './run-berth.ts';

const agentId = '00000000-0000-7000-8000-000000000001';

test('Ctrl-C while a message is on its way cancels its run as soon as that is known.', async (t) => {
  const run = { runId: 'run-1', conversationId: 'conversation-1' };
  let stream: ServerResponse | undefined;
  const answer = (response: ServerResponse, { path }: Seen): void => {
    if (path === `/v1/agents/${agentId}`) return json(200, { agent: { id: agentId, name: 'A' } })(response);
    if (path === '/api/v1/chat/send') {
      stream = response;
      child.kill('SIGINT');
      // An answer that takes its time, as one does that waits for a sandbox.
      return void setTimeout(() => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(frame(1, 'message.created', run));
      }, 300);
    }
    json(200, { run: { id: run.runId, status: 'cancelled' } })(response);
    stream?.end(frame(2, 'run.cancelled', run));
  };
  const { url, seen } = await fakeService(t, [answer]);
  const { child, ended } = runBerth(t, url, ['chat', agentId, 'hello']);
  const { code } = await ended;
  assert.equal(code, 2);
  assert.deepEqual(
    seen.map(({ method, path }) => `${method} ${path}`),
    [`GET /v1/agents/${agentId}`, 'POST /api/v1/chat/send', `POST /v1/runs/${run.runId}/cancel`],
  );
});
