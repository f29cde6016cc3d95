import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { fakeService, json, type Seen } from '../../sdk/test/fake-service.ts';

const bin = fileURLToPath(new URL('../bin/berth.mjs', import.meta.url));
const agentId = '00000000-0000-7000-8000-000000000001';

test('acp says why the service refuses its connection', async (t) => {
  const refusal = { jsonrpc: '2.0', id: null, error: { code: -32000, message: 'This key has 100 open.' } };
  const answer = (response: ServerResponse, { path }: Seen): void => {
    if (path === '/acp') return json(429, refusal)(response);
    json(200, { agent: { id: agentId, name: 'A', url: service.url } })(response);
  };
  const service = await fakeService(t, [answer]);
  const child = spawn(process.execPath, [bin, 'acp', agentId], {
    env: { PATH: process.env['PATH'], HOME: '/nonexistent', BERTH_URL: service.url, BERTH_API_KEY: 'key' },
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  t.after(() => child.kill('SIGKILL'));
  let told = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (told += text));
  const [code] = await once(child, 'close');
  assert.equal(code, 1);
  assert.match(told, /^berth: no connection to ws:\S+\/acp; This key has 100 open\.\n$/);
});
