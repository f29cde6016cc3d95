import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fakeService, json, type Seen } from '../../sdk/test/fake-service.ts';
import { runBerth } from './run-berth.ts';

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
  const { code, told } = await runBerth(t, url, ['sandbox', 'cp', `${agentId}:file`, folder]).ended;
  assert.deepEqual([code, told], [1, 'The download broke off.\n']);
  assert.deepEqual(readdirSync(folder), []);
});
