import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import { DomainError } from '../../src/domain/errors.ts';
import { newId } from '../../src/domain/ids.ts';
import { UrlRefused, type UrlGuard } from '../../src/domain/url-guard.ts';
import { RepoError } from '../../src/domain/ports/repos.ts';
import { postTo } from '../../src/egress/post.ts';
import { openRepos } from '../../src/repos/open-repos.ts';
import { createPushTargets } from '../../src/services/a2a-push-targets.ts';
import { createChannels, type ChannelsDependencies } from '../../src/services/channels.ts';
import { createGuardedCaller } from '../../src/services/guarded-call.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import {
  createWebhookEndpoints,
  type WebhookEndpointsDependencies,
} from '../../src/services/webhook-endpoints.ts';
import { createWebhookWork, type WebhookWorkDependencies } from '../../src/services/webhook-work.ts';
import { egressWorld, exchange, openTunnel } from '../egress/fixture.ts';
import { hostileHosts, hostileNames, urlsFor } from '../support/hostile-urls.ts';
import { silentLog } from '../support/log.ts';
import { trap } from '../support/trap.ts';

function resolver(names: Record<string, string[][]> = hostileNames) {
  const asked = new Map<string, number>();
  return async (name: string): Promise<string[]> => {
    const answers = names[name.toLowerCase()] ?? [];
    const time = asked.get(name) ?? 0;
    asked.set(name, time + 1);
    return answers[Math.min(time, answers.length - 1)] ?? [];
  };
}

/** Whoever of this process reaches it has got past the guard. */
const ownTrap = (t: TestContext) => trap(t, () => process.pid);

const call = (url: string) => ({ method: 'POST' as const, url, headers: {}, body: 'x', token: null });

/** Makes the attempt at one delivery that is due, and throws what its log would tell. */
async function sendWebhook(guard: UrlGuard, url: string): Promise<void> {
  const noted = Promise.withResolvers<string | null>();
  const delivery = {
    id: newId(),
    endpointId: newId(),
    orgId: newId(),
    attempts: 0,
    type: 'webhook.test',
    data: {},
    at: new Date(),
  };
  const work = createWebhookWork({
    db: { tx: (make: () => Promise<void>) => make() },
    endpoints: {
      get: async () => ({ id: delivery.endpointId, url, status: 'enabled' }),
      secrets: async () => [],
      lock: async () => null,
    },
    deliveries: {
      claim: async () => [delivery],
      noted: async (_id: string, _attempts: number, { error }: { error: string | null }) => {
        noted.resolve(error);
        return false;
      },
    },
    targets: createPushTargets(guard),
    post: postTo,
    log: { ...silentLog, warn: (_message: string, { error }: { error: unknown }) => noted.reject(error) },
    wake: () => {},
  } as unknown as WebhookWorkDependencies);
  await work.runDue();
  const error = await noted.promise;
  await work.stop();
  // What was dialled says what became of the connection.
  if (error === null || /^(No|The receiver) /.test(error)) throw new Error(`It was dialled: ${error}`);
  throw new UrlRefused(error);
}

/** Every place at which a URL of a user leads to a connection of the service. */
function places(guard: UrlGuard, root: string): Record<string, (url: string) => Promise<unknown>> {
  const caller = createGuardedCaller(guard);
  const targets = createPushTargets(guard);
  const repos = openRepos({ root, log: silentLog, guard });
  const orgId = newId();
  const agent = { id: newId(), orgId };
  const channels = createChannels({
    agents: { get: async () => agent },
    kinds,
    guard,
  } as unknown as ChannelsDependencies);
  const endpoint = {
    id: newId(),
    orgId,
    name: 'hook',
    url: 'https://hooks.example.com/',
    events: [],
    agentId: null,
  };
  const endpoints = createWebhookEndpoints({
    targets,
    endpoints: { get: async () => endpoint },
  } as unknown as WebhookEndpointsDependencies);
  const owner = { keyId: newId(), orgId, scope: 'edit', binding: 'org-bound', agentId: null } as const;
  return {
    'answers, attachments and mail of channels': (url) => caller.call(call(url)),
    'access tokens of channels': (url) =>
      caller.call({
        ...call('https://93.184.216.1/'),
        token: { cacheKey: url, call: call(url), tokenField: 'access_token' },
      }),
    'apiBaseUrl of channels': (apiBaseUrl) =>
      channels.create(owner, agent.id, {
        kind: 'slack',
        credentials: { signingSecret: 's', botToken: 'b' },
        apiBaseUrl,
      }),
    'registration of push notifications': (url) => targets.check(url),
    'push notifications': async (url) =>
      postTo(await targets.resolve(url), {
        headers: {},
        body: '{}',
        timeoutMs: 1_000,
        signal: AbortSignal.timeout(1_000),
      }),
    'registration of outbound webhooks': (url) => endpoints.create(owner, { url, events: ['run.completed'] }),
    'change of outbound webhooks': (url) => endpoints.update(owner, endpoint.id, { url }),
    'outbound webhooks': (url) => sendWebhook(guard, url),
    'gitUrl of agents': async (url) => (await repos).checkUrl(url),
    'fetches from gitUrl': async (url) =>
      (await repos).repos.fetch(agent.id, { url, ref: null, token: null }),
  };
}

const isRefusal = (error: unknown) =>
  error instanceof UrlRefused ||
  error instanceof RepoError ||
  (error instanceof DomainError && error.code === 'invalid_request');

test('a hostile URL is refused wherever it is given, before a connection is made', async (t) => {
  const { port, caught } = await ownTrap(t);
  const root = await mkdtemp(join(tmpdir(), 'berth-urls-'));
  t.after(() => rm(root, { recursive: true, force: true }));
  for (const [place, attempt] of Object.entries(places(createUrlGuard([], resolver()), root))) {
    for (const url of [...urlsFor('http', port), ...urlsFor('https', port)]) {
      await assert.rejects(attempt(url), isRefusal, `${place}: ${JSON.stringify(url)}`);
    }
  }
  assert.deepEqual(caught, []);
});

test('a name is resolved once, and what it leads to later is not dialled', async (t) => {
  const { port, caught } = await ownTrap(t);
  const guard = createUrlGuard([], resolver({ 'rebind.example.com': [['93.184.216.1'], ['127.0.0.1']] }));
  const checked = await guard.check(`http://rebind.example.com:${port}/`, ['http:']);
  assert.deepEqual(checked.addresses, ['93.184.216.1']);
  // Dialled by the address: with nobody there, and the name meanwhile leading to this machine, nothing arrives.
  const signal = AbortSignal.timeout(200);
  await assert.rejects(postTo(checked, { headers: {}, body: '{}', timeoutMs: 200, signal }));
  await assert.rejects(guard.check(`http://rebind.example.com:${port}/`, ['http:']), UrlRefused);
  assert.deepEqual(caught, []);
});

test('answers, attachments, access tokens and notices go to the address that was checked, though the name leads elsewhere by then', async (t) => {
  const { createServer: createHttp } = await import('node:http');
  const reached: string[] = [];
  const server = createHttp((request, response) => {
    reached.push(`${request.headers.host?.split(':')[0]} at ${request.socket.localAddress}`);
    response.end('{"access_token":"t"}');
  });
  // On both of the addresses.
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const names = ['rebind.example.com', 'token.example.com', 'notice.example.com'];
  const rebinding = Object.fromEntries(names.map((name) => [name, [['127.0.0.2'], ['127.0.0.1']]]));
  const guard = createUrlGuard(['127.0.0.2/32'], resolver(rebinding));
  const [answers, tokens, notices] = names.map((name) => `http://${name}:${port}/`);
  const caller = createGuardedCaller(guard);
  const grant = { cacheKey: 'key', call: call(tokens!), tokenField: 'access_token' };
  assert.equal((await caller.call({ ...call(answers!), token: grant })).status, 200);
  const signal = AbortSignal.timeout(30_000);
  const target = await createPushTargets(guard).resolve(notices!);
  assert.equal((await postTo(target, { headers: {}, body: '', timeoutMs: 30_000, signal })).status, 200);
  const expected = ['token', 'rebind', 'notice'].map((name) => `${name}.example.com at 127.0.0.2`);
  assert.deepEqual(reached, expected);
  // By now they lead where nobody may go.
  for (const url of [answers!, tokens!]) await assert.rejects(caller.call(call(url)), UrlRefused);
  await assert.rejects(createPushTargets(guard).resolve(notices!), isRefusal);
  assert.deepEqual(reached, expected);
});

test('a redirect is an answer, and nobody follows it', async (t) => {
  const { port, caught } = await ownTrap(t);
  const { createServer: createHttp } = await import('node:http');
  const server = createHttp((_request, response) => {
    response.writeHead(302, { location: `http://127.0.0.1:${port}/` }).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const guard = createUrlGuard(['127.0.0.0/8']);
  assert.equal((await createGuardedCaller(guard).call(call(url))).status, 302);
  const target = await createPushTargets(guard).resolve(url);
  const signal = AbortSignal.timeout(5_000);
  assert.equal((await postTo(target, { headers: {}, body: '', timeoutMs: 5_000, signal })).status, 302);
  assert.deepEqual(caught, []);
});

test('what an agent calls itself, such as its MCP servers, leads to no hostile host either', async (t) => {
  const world = await egressWorld(t, { policy: { mode: 'open' } });
  for (const [name, answers] of Object.entries(hostileNames)) world.names.set(name, answers[0]!);
  for (const host of hostileHosts) {
    // oxlint-disable-next-line no-control-regex
    if (!/^[\x21-\x7e]+$/.test(host)) continue;
    const { socket, status } = await openTunnel(world.socketPath, `${host}:443`);
    socket.destroy();
    assert.ok(status >= 400, `CONNECT ${host}: ${status}`);
    const plain = await exchange(
      world.socketPath,
      `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
    );
    assert.match(plain, /^HTTP\/1\.1 4\d\d /, `GET ${host}`);
  }
  assert.deepEqual(world.dialled, []);
});
