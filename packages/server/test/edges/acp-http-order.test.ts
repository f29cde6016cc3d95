import assert from 'node:assert/strict';
import type { AcpServer } from '@agentclientprotocol/sdk/experimental/server';
import { test } from 'node:test';
import { Connections } from '../../src/edges/acp/connections.ts';
import { handleHttp } from '../../src/edges/acp/http.ts';
import type { HostCall } from '../../src/edges/hosts/host-edge.ts';
import { holdLane } from '../support/held-lane.ts';
import { until } from '../support/until.ts';
import { uncounted } from '../support/uncounted.ts';

/** One connection, with an agent that notes what it is given; a message that says so is never taken. */
function start() {
  const seen: string[] = [];
  const connections = new Connections();
  const connection = connections.open('key', 'agent', false);
  connections.name(connection, 'id');
  const acp = {
    async handleRequest(request: Request) {
      const { method } = (await request.json()) as { method: string };
      seen.push(method);
      if (method === 'never') await new Promise(() => undefined);
      return new Response(null, { status: 202 });
    },
  } as unknown as AcpServer;
  const decoded: string[] = [];
  const post = (method: string, padding = 0) => {
    const body = Buffer.from(
      JSON.stringify({ jsonrpc: '2.0', method, params: { padding: 'x'.repeat(padding) } }),
    );
    Object.defineProperty(body, 'toString', {
      value: () => {
        decoded.push(method);
        return Buffer.prototype.toString.call(body);
      },
    });
    const leaving = new AbortController();
    const headers: Record<string, string> = { 'acp-connection-id': 'id', 'content-type': 'application/json' };
    const call = {
      method: 'POST',
      caller: { orgId: 'org', keyId: 'key' },
      agent: { id: 'agent' },
      header: (name: string) => headers[name],
      request: new Request('http://agent.localhost/acp', { method: 'POST', headers, body: 'x' }),
      head: {},
      bytes: async () => body,
      hold: uncounted,
      gone: () => leaving.signal,
    } as unknown as HostCall;
    const answer = handleHttp(call, acp, connections, () => assert.fail());
    return { answer, leave: () => leaving.abort() };
  };
  return { seen, decoded, post, connection };
}

const large = 1_000_000;

test('a small message by POST does not overtake the large one before it, which waits for its turn', async (t) => {
  const { seen, decoded, post, connection } = start();
  const letGo = holdLane(t, { orgId: 'org', id: 'key' });
  const prompt = post('session/prompt', large);
  const cancel = post('session/cancel');
  await until('the prompt waits', () => connection.order.isBusy);
  assert.deepEqual([seen, decoded], [[], []]);
  await letGo();
  for (const { answer } of [prompt, cancel]) assert.equal((await answer).status, 202);
  assert.deepEqual(seen, ['session/prompt', 'session/cancel']);
  assert.deepEqual(decoded, seen);
});

test('a message that the agent cannot take yet does not hold up what comes behind it', async () => {
  const { seen, post } = start();
  void post('never', large);
  assert.equal((await post('session/cancel').answer).status, 202);
  assert.deepEqual(seen, ['never', 'session/cancel']);
});

test('a message of a client that has gone is let go unread, and the one behind it is taken', async (t) => {
  const { seen, decoded, post, connection } = start();
  const letGo = holdLane(t, { orgId: 'org', id: 'key' });
  const prompts = [post('session/prompt', large), post('session/prompt', large)];
  const cancel = post('session/cancel');
  await until('the first waits', () => connection.order.isBusy);
  for (const prompt of prompts) prompt.leave();
  for (const prompt of prompts) await assert.rejects(prompt.answer, { code: 'invalid_request' });
  // Nobody has let the lane go.
  assert.equal((await cancel.answer).status, 202);
  assert.deepEqual([seen, decoded], [['session/cancel'], ['session/cancel']]);
  await letGo();
});

test('a hundred messages of one client at once, large and small, are all taken in their order', async () => {
  const { seen, post } = start();
  const sent = Array.from({ length: 100 }, (_, at) => post(`m${at}`, at % 3 === 0 ? 200_000 : 10));
  for (const { answer } of sent) assert.equal((await answer).status, 202);
  assert.deepEqual(
    seen,
    sent.map((_, at) => `m${at}`),
  );
});
