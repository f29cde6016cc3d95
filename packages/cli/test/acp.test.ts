import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { fakeService, json, type Seen } from '../../sdk/test/fake-service.ts';
import { runBerth } from './run-berth.ts';

const agentId = '00000000-0000-7000-8000-000000000001';

test('acp says why the service refuses its connection', async (t) => {
  const refusal = { jsonrpc: '2.0', id: null, error: { code: -32000, message: 'This key has 100 open.' } };
  const answer = (response: ServerResponse, { path }: Seen): void => {
    if (path === '/acp') return json(429, refusal)(response);
    json(200, { agent: { id: agentId, name: 'A', url: service.url } })(response);
  };
  const service = await fakeService(t, [answer]);
  const { code, told } = await runBerth(t, service.url, ['acp', agentId]).ended;
  assert.equal(code, 1);
  assert.match(told, /^berth: no connection to ws:\S+\/acp; This key has 100 open\.\n$/);
});
