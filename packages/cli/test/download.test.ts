import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { fakeService, json, type Seen } from '../../sdk/test/fake-service.ts';

const bin = fileURLToPath(new URL('../bin/berth.mjs', import.meta.url));
const agentId = '00000000-0000-7000-8000-000000000001';

test('a download that breaks off says so in one line and leaves nothing of the file', async (t) => {
  const { url } = await fakeService(t, [
    (response: ServerResponse, { method, path }: Seen): void => {
      if (path.startsWith('/v1/')) return json(200, { agent: { id: agentId, name: 'A' } })(response);
      response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': '1000' });
      if (method === 'HEAD') return void response.end();
      response.write('the beginning', () => setImmediate(() => response.destroy()));
    },
  ]);
  const folder = mkdtempSync(join(tmpdir(), 'berth-cp-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const child = spawn(process.execPath, [bin, 'sandbox', 'cp', `${agentId}:file`, folder], {
    env: { PATH: process.env['PATH'], HOME: '/nonexistent', BERTH_URL: url, BERTH_API_KEY: 'key' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  t.after(() => child.kill('SIGKILL'));
  let told = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (told += text));
  const [code] = await once(child, 'close');
  assert.deepEqual([code, told], [1, 'The download broke off.\n']);
  assert.deepEqual(readdirSync(folder), []);
});
