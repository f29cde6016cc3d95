import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { EdgeWorld } from '../support/edge-world.ts';
import { filesWorld } from '../support/edge-world.ts';
import { until } from '../support/until.ts';

let world: EdgeWorld;
let origin: string;
let workspace: string;
before(async () => {
  ({ world, origin, workspace } = await filesWorld());
});
after(() => world.close());

function ask(method: string, path: string, given: { body?: string; headers?: Record<string, string> } = {}) {
  return fetch(`${origin}/sandbox/${world.agent.id}/files${path}`, {
    method,
    headers: { authorization: `Bearer ${world.keys.owner}`, ...given.headers },
    ...(given.body !== undefined && { body: given.body }),
  });
}

test('If-Match and If-None-Match decide whether a file is written, read or deleted', async () => {
  const send = async (method: string, path: string, headers: Record<string, string>, body?: string) => {
    const reply = await ask(method, path, { headers, ...(body !== undefined && { body }) });
    const text = await reply.text();
    return { status: reply.status, etag: reply.headers.get('etag') ?? '', text };
  };
  const failed = async (method: string, path: string, headers: Record<string, string>, body?: string) => {
    const { status, text } = await send(method, path, headers, body);
    assert.deepEqual([status, JSON.parse(text).code], [412, 'precondition_failed'], `${method} ${path}`);
  };
  const isNew = { 'if-none-match': '*' };
  await failed('PUT', '/lost/file', { 'if-match': '*' }, 'x');
  assert.equal(existsSync(join(workspace, 'lost')), false);
  const made = await send('PUT', '/guarded', isNew, 'one');
  assert.equal(made.status, 201);
  assert.match(made.etag, /^"[^"]+"$/);
  await failed('PUT', '/guarded', isNew, 'two');
  const second = await send('PUT', '/guarded', { 'if-match': `"other", ${made.etag}` }, 'two');
  assert.equal(second.status, 200);
  await failed('PUT', '/guarded', { 'if-match': made.etag }, 'three');
  await failed('PUT', '/guarded', { 'if-match': `W/${second.etag}` }, 'three');
  await failed('PUT', '/guarded', { 'if-none-match': `W/${second.etag}` }, 'three');
  await failed('GET', '/guarded', { 'if-match': made.etag });
  await failed('GET', '/', { 'if-match': second.etag });
  await failed('GET', '/?archive=tar', { 'if-match': second.etag });
  await failed('DELETE', '/guarded', { 'if-match': made.etag });
  assert.equal((await send('GET', '/guarded', { 'if-match': second.etag })).text, 'two');
  assert.equal((await send('GET', '/', { 'if-match': '*' })).status, 200);
  for (const bad of ['', 'plain', '"open', '"a" "b"', '*, "a"']) {
    const refused = await send('PUT', '/guarded', { 'if-match': bad }, 'three');
    assert.deepEqual([refused.status, JSON.parse(refused.text).details[0].path], [400, 'If-Match'], bad);
  }
  const listed = (await (await ask('GET', '/')).json()) as { files: { name: string; etag: string | null }[] };
  assert.equal(listed.files.find(({ name }) => name === 'guarded')!.etag, second.etag);
  // Written to by a program, a file has another tag with the next tick of the kernel's clock.
  const etag = await until('it has another tag', async () => {
    writeFileSync(join(workspace, 'guarded'), 'owt');
    const head = await send('HEAD', '/guarded', {});
    return head.etag === second.etag ? null : head.etag;
  });
  await failed('DELETE', '/guarded', { 'if-match': second.etag });
  assert.equal((await send('DELETE', '/guarded', { 'if-match': etag })).status, 204);
  assert.equal((await send('DELETE', '/guarded', { 'if-match': etag })).status, 404);
});

test('of many that write one new file or folder, or the next state of a file, one does', async () => {
  const statuses = async (path: string, headers: Record<string, string>, body: (n: number) => string) => {
    const replies = await Promise.all(
      Array.from({ length: 8 }, (_, n) => ask('PUT', path, { headers, body: body(n) })),
    );
    return replies.map(({ status }) => status).sort();
  };
  const seven = Array.from({ length: 7 }, () => 412);
  const isNew = { 'if-none-match': '*' };
  assert.deepEqual(await statuses('/once', isNew, String), [201, ...seven]);
  assert.deepEqual(await statuses('/once.d/', isNew, () => ''), [201, ...seven]);
  const etag = (await ask('HEAD', '/once')).headers.get('etag')!;
  assert.deepEqual(await statuses('/once', { 'if-match': etag }, (n) => `next ${n}`), [200, ...seven]);
});
