import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { openRepos } from '../../src/repos/open-repos.ts';
import type { RepoLimits } from '../../src/repos/repo-limits.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

/** Servers that take connections and say nothing; `waits` counts those that are open. */
async function mute(t: TestContext) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined).resume());
    socket.on('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}/x.git`;
  return {
    request: { url, ref: null, token: null },
    waits: () => sockets.size,
    cut: () => sockets.forEach((socket) => socket.destroy()),
  };
}

async function ours(t: TestContext, limits: Partial<RepoLimits>) {
  const root = await mkdtemp(join(tmpdir(), 'berth-mute-'));
  const opened = await openRepos({ root, guard: createUrlGuard(['127.0.0.0/8']), log: silentLog, limits });
  t.after(async () => {
    await opened.idle();
    await rm(root, { recursive: true, force: true });
  });
  return opened;
}

test('agents whose servers say nothing leave a place to fetch for every other organisation', async (t) => {
  const silence = await mute(t);
  const other = await mute(t);
  const { repos } = await ours(t, { listTimeoutMs: 60_000 });
  const orgId = newId();
  const begin = (of: typeof silence, org: string) =>
    repos.fetch(newId(), { ...of.request, orgId: org }).catch(() => undefined);
  const theirs = Array.from({ length: 6 }, () => begin(silence, orgId));
  await until('the organisation has its share', () => silence.waits() === 3);
  const mine = begin(other, newId());
  await until('the other one is fetched for', () => other.waits() === 1);
  assert.equal(silence.waits(), 3);
  theirs.push(mine);
  // Ends what waits, one after another.
  const ending = Promise.all(theirs);
  let isOver = false;
  void ending.then(() => (isOver = true));
  await until('all have ended', () => {
    silence.cut();
    other.cut();
    return isOver;
  });
});

for (const ref of [null, '1'.repeat(40)])
  test(`a server that says nothing is given up soon, asked for ${ref === null ? 'a branch' : 'a commit'}`, async (t) => {
    const silence = await mute(t);
    const { repos } = await ours(t, { listTimeoutMs: 700 });
    await assert.rejects(repos.fetch(newId(), { ...silence.request, ref }), {
      name: 'RepoError',
      message: 'The server took longer than 1 seconds to say what it has; try again later.',
    });
    await until('its git is gone', () => silence.waits() === 0);
  });
