import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { endSharedWorld, sharedWorld } from '../support/scenario-world.ts';
import type { Api } from '../support/service.ts';

after(endSharedWorld);

interface Item {
  id?: string;
  key?: string;
  seq?: number;
  createdAt?: string;
}

const nameOf = (item: Item) => String(item.id ?? item.key ?? item.seq);

/** All pages of a list, with `between` done after each. */
async function allPages(
  call: Api,
  path: string,
  noun: string,
  between: () => Promise<unknown>,
): Promise<Item[]> {
  const items: Item[] = [];
  // The lists of the organisation have what other tests made.
  const limit = /^\/v1\/[\w-]+$/.test(path) ? 20 : 2;
  for (let cursor: string | null = null, pages = 0; pages === 0 || cursor !== null; pages += 1) {
    assert.ok(pages < 100, `${path} does not end`);
    const page = await call('GET', `${path}?limit=${limit}${cursor === null ? '' : `&cursor=${cursor}`}`);
    assert.equal(page.status, 200, page.text);
    const found = page.body[noun] as Item[];
    assert.ok(found.length <= limit);
    assert.ok(found.length === limit || page.body.nextCursor === null, 'a page that is not full is the last');
    items.push(...found);
    cursor = page.body.nextCursor as string | null;
    await between();
  }
  return items;
}

test('pages of every list neither repeat nor skip a row while others insert', async () => {
  const world = await sharedWorld();
  const { call } = world;
  const made = await call('POST', '/v1/agents', { name: 'Listed' });
  const agentId = made.body.agent.id as string;
  const send = (conversationId: string | null = null) => world.send('listed', { agentId, conversationId });
  const { conversationId } = (await send()).body;
  const under = `/v1/agents/${agentId}`;
  const lists: [path: string, noun: string, insert: () => Promise<{ status: number; text: string }>][] = [
    ['/v1/agents', 'agents', () => call('POST', '/v1/agents', { name: 'More' })],
    [`${under}/conversations`, 'conversations', () => send()],
    [`${under}/runs`, 'runs', () => send()],
    [`/v1/conversations/${conversationId}/messages`, 'messages', () => send(conversationId)],
    [`/v1/conversations/${conversationId}/events`, 'events', () => send(conversationId)],
    [`${under}/api-keys`, 'keys', () => call('POST', `${under}/api-keys`, { name: 'more' })],
    [
      '/v1/api-keys',
      'keys',
      () => call('POST', '/v1/api-keys', { name: 'more', scope: 'use', binding: 'org-bound' }),
    ],
    [`${under}/deployments`, 'deployments', () => call('POST', `${under}/deployments`, {})],
  ];
  for (const [path, noun, insert] of lists) {
    for (let count = 0; count < 5; count += 1) {
      const inserted = await insert();
      assert.ok(inserted.status < 300, `${path}: ${inserted.text}`);
    }
    const before = await allPages(call, path, noun, async () => {});
    assert.ok(before.length >= 5, path);
    let inserts = 0;
    const during = await allPages(call, path, noun, async () => {
      if (inserts++ < 4) await insert();
    });
    assert.deepEqual(during.map(nameOf), before.map(nameOf), path);
    assert.equal(new Set(during.map(nameOf)).size, during.length, path);
    const times = during.map(({ createdAt }) => createdAt ?? '');
    assert.deepEqual(times, times.toSorted().reverse(), `${path} is newest first`);
    const [newest] = (await call('GET', `${path}?limit=1`)).body[noun] as Item[];
    assert.notEqual(nameOf(newest!), nameOf(before[0]!), `${path} begins with what was inserted`);
  }
});

test('pages stay whole while several clients insert at the same time', async () => {
  const world = await sharedWorld();
  const { call } = world;
  const path = `/v1/agents/${world.otherAgentId}/conversations`;
  const send = () => world.send('at once', { agentId: world.otherAgentId }, { prefer: 'respond-async' });
  await Promise.all(Array.from({ length: 12 }, send));
  const before = await allPages(call, path, 'conversations', async () => {});
  let isDone = false;
  const inserters = [1, 2, 3].map(async () => {
    while (!isDone) await send();
  });
  const during = await allPages(call, path, 'conversations', async () => {});
  isDone = true;
  await Promise.all(inserters);
  // What came before the first page was read may be at the front.
  const tail = during.map(nameOf).slice(-before.length);
  assert.deepEqual(tail, before.map(nameOf));
  assert.equal(new Set(during.map(nameOf)).size, during.length);
});

test('a row that is deleted while a list is paged takes no other with it', async () => {
  const world = await sharedWorld();
  const { call } = world;
  const made = await call('POST', '/v1/agents', { name: 'Shrinking' });
  const path = `/v1/agents/${made.body.agent.id}/api-keys`;
  const ids: string[] = [];
  for (let count = 0; count < 6; count += 1) {
    ids.unshift((await call('POST', path, { name: `k${count}` })).body.key.id as string);
  }
  // The cursor points at the second; it and the third are revoked before the next page.
  let isFirst = true;
  const seen = await allPages(call, path, 'keys', async () => {
    if (!isFirst) return;
    isFirst = false;
    for (const id of ids.slice(1, 3)) assert.equal((await call('DELETE', `${path}/${id}`)).status, 204);
  });
  assert.deepEqual(
    seen.map(nameOf),
    ids.filter((_, index) => index !== 2),
  );
});
