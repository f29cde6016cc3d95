import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { kinds } from '../../src/channels/kinds.ts';
import type { GitWire } from '../../src/domain/ports/repos.ts';
import { DomainError } from '../../src/domain/errors.ts';
import { newId } from '../../src/domain/ids.ts';
import { UrlRefused, type UrlGuard } from '../../src/domain/url-guard.ts';
import { RepoError } from '../../src/domain/ports/repos.ts';
import { postTo } from '../../src/egress/post.ts';
import { openRepos, type OpenRepos } from '../../src/repos/open-repos.ts';
import { createAttachments } from '../../src/services/attachments.ts';
import { createPushTargets } from '../../src/services/a2a-push-targets.ts';
import { createChannels, type ChannelsDependencies } from '../../src/services/channels.ts';
import { createGuardedCaller } from '../../src/services/guarded-call.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import {
  createWebhookEndpoints,
  type WebhookEndpointsDependencies,
} from '../../src/services/webhook-endpoints.ts';
import { createWebhookWork, type WebhookWorkDependencies } from '../../src/services/webhook-work.ts';
import { setupOf } from '../channels/fixtures/fixture.ts';
import { twilioFixture } from '../channels/fixtures/chat.ts';
import { egressWorld, exchange, openTunnel } from '../egress/fixture.ts';
import { hostileHosts, hostileNames, urlsFor } from '../support/hostile-urls.ts';
import { httpsGit } from '../support/https-git.ts';
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
function places(guard: UrlGuard, git: OpenRepos): Record<string, (url: string) => Promise<unknown>> {
  const caller = createGuardedCaller(guard);
  const targets = createPushTargets(guard);
  const orgId = newId();
  const agent = { id: newId(), orgId };
  const channels = createChannels({
    agents: { get: async () => agent },
    channels: { get: async (id: string) => ({ id, agentId: agent.id, kind: 'generic' }) },
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
    'change of apiBaseUrl of channels': (apiBaseUrl) => channels.update(owner, newId(), { apiBaseUrl }),
    'replyUrl of channels': (replyUrl) =>
      channels.create(owner, agent.id, { kind: 'generic', settings: { replyUrl } }),
    'change of replyUrl of channels': (replyUrl) =>
      channels.update(owner, newId(), { settings: { replyUrl } }),
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
    'gitUrl of agents': (url) => git.checkUrl(url),
    'fetches from gitUrl': (url) => git.repos.fetch(agent.id, { url, ref: null, token: null }),
  };
}

const isRefusal = (error: unknown) =>
  error instanceof UrlRefused ||
  error instanceof RepoError ||
  (error instanceof DomainError && error.code === 'invalid_request');

test('a hostile URL is refused wherever it is given, before a connection is made', async (t) => {
  const { port, caught } = await ownTrap(t);
  const root = await mkdtemp(join(tmpdir(), 'berth-urls-'));
  const guard = createUrlGuard([], resolver());
  const git = await openRepos({ root, log: silentLog, guard });
  t.after(async () => {
    // So many fetches call for maintenance, which would go on in a folder that is being removed.
    await git.idle();
    await rm(root, { recursive: true, force: true });
  });
  for (const [place, attempt] of Object.entries(places(guard, git))) {
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
  const reached: string[] = [];
  const server = createServer((request, response) => {
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
  const server = createServer((_request, response) => {
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

/** Where the redirects of a test lead: this machine at an address that nobody opened, and what clouds keep. */
const insideOf = (port: number) => [
  `https://127.0.0.2:${port}/`,
  `http://127.0.0.2:${port}/`,
  `https://169.254.169.254:${port}/latest`,
  'http://169.254.169.254/latest',
];

/** The one address that is open. `hops` are asked for by their number in the path; who came is noted with the address where. */
async function redirecting(t: TestContext, hops: string[]) {
  const reached: string[] = [];
  const server = createServer((request, response) => {
    reached.push(`${request.url} at ${request.socket.localAddress}`);
    const location = hops[Number(request.url?.slice(1))];
    if (location === undefined) return void response.end('{}');
    response.writeHead(302, { location }).end();
  });
  // On every address: whoever dials another one than the open one is seen as well.
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, reached };
}

/** A file of a message by Twilio, which is the one provider whose redirects are followed, to where the bytes are. */
async function saveFile(guard: UrlGuard, origin: string, path: string): Promise<string> {
  const form = {
    MessageSid: 'SM1',
    From: '+1',
    To: '+2',
    Body: 'x',
    NumMedia: '1',
    MediaUrl0: origin + path,
  };
  const request = {
    method: 'POST',
    url: 'https://berth.example/',
    headers: new Map([['content-type', 'application/x-www-form-urlencoded']]),
    body: Buffer.from(new URLSearchParams(form).toString()),
  };
  const setup = setupOf(twilioFixture, { apiBaseUrl: origin });
  const { attachments } = kinds.twilio.parse(request, setup).events[0]!;
  assert.equal(attachments.length, 1);
  const files = { write: async () => ({}) as never };
  const saved = createAttachments({ caller: createGuardedCaller(guard), files, log: silentLog });
  const to = { channelId: newId(), orgId: newId(), agentId: newId() };
  return (await saved.save(to, 'key', attachments))[0]!;
}

async function pushTo(guard: UrlGuard, url: string): Promise<number> {
  const signal = AbortSignal.timeout(30_000);
  const target = await createPushTargets(guard).resolve(url);
  return (await postTo(target, { headers: {}, body: '{}', timeoutMs: 30_000, signal })).status;
}

test('a redirect into a private network or to the metadata of a cloud leads to no connection, in outbound webhooks, push notifications and attachments', async (t) => {
  const { port: inside, caught } = await ownTrap(t);
  const hops = insideOf(inside);
  const { port, reached } = await redirecting(t, hops);
  const origin = `http://127.0.0.1:${port}`;
  const asked: string[] = [];
  const open = createUrlGuard(['127.0.0.1/32']);
  const guard: UrlGuard = {
    check(url, protocols) {
      asked.push(url);
      return open.check(url, protocols);
    },
  };
  for (const [hop] of hops.entries()) {
    await assert.rejects(sendWebhook(guard, `${origin}/${hop}`), /It was dialled: .*302/);
    assert.equal(await pushTo(guard, `${origin}/${hop}`), 302);
    const line = await saveFile(guard, origin, `/${hop}`);
    const isFollowed = hops[hop]!.startsWith('https:');
    assert.match(line, isFollowed ? /its address may not be called/ : /answered with status 302/);
  }
  assert.deepEqual(
    reached,
    hops.flatMap((_, hop) => Array.from({ length: 3 }, () => `/${hop} at 127.0.0.1`)),
  );
  // What was followed was looked at before, and of the rest nobody asked for anything further.
  const followed = hops.filter((location) => location.startsWith('https:'));
  assert.deepEqual(
    asked.filter((url) => !url.startsWith(origin)),
    followed,
  );
  assert.deepEqual(caught, []);
});

test('a name that leads into a private network by its second answer is dialled at the first and then refused, in outbound webhooks, push notifications and attachments', async (t) => {
  const { port, reached } = await redirecting(t, []);
  const names = ['hook.example.com', 'push.example.com', 'file.example.com'];
  const rebinding = Object.fromEntries(names.map((name) => [name, [['127.0.0.1'], ['127.0.0.2']]]));
  const guard = createUrlGuard(['127.0.0.1/32'], resolver(rebinding));
  const [hook, push, file] = names.map((name) => `http://${name}:${port}`);
  await assert.rejects(sendWebhook(guard, `${hook}/hook`), /It was dialled/);
  assert.equal(await pushTo(guard, `${push}/push`), 200);
  assert.match(await saveFile(guard, file!, '/file'), /media-1/);
  const expected = ['hook', 'push', 'file'].map((path) => `/${path} at 127.0.0.1`);
  assert.deepEqual(reached, expected);
  await assert.rejects(sendWebhook(guard, `${hook}/hook`), UrlRefused);
  await assert.rejects(pushTo(guard, `${push}/push`), isRefusal);
  assert.match(await saveFile(guard, file!, '/file'), /its address may not be called/);
  assert.deepEqual(reached, expected);
});

test('a repository is fetched from no place that a redirect or the second answer for its name leads to', async (t) => {
  const { port: inside, caught } = await ownTrap(t);
  const root = await mkdtemp(join(tmpdir(), 'berth-hops-'));
  t.after(() => rm(root, { recursive: true, force: true }));
  const host = await httpsGit(root, {} as GitWire);
  t.after(() => host.close());
  let location = '';
  host.state.intercept = (_request, response) => {
    response.writeHead(302, { location }).end();
    return true;
  };
  const guard = createUrlGuard(
    ['127.0.0.1/32'],
    resolver({ 'git.test': [['127.0.0.1']], 'other.test': [['127.0.0.1'], ['127.0.0.2']] }),
  );
  const { repos } = await openRepos({
    root: join(root, 'ours'),
    log: silentLog,
    guard,
    extraCaFiles: [host.caFile],
  });
  const fetched = (name: string) =>
    assert.rejects(
      repos.fetch(newId(), { url: `https://${name}:${host.port}/x.git`, ref: null, token: null }),
      RepoError,
    );
  for (location of insideOf(inside)) await fetched('git.test');
  assert.ok(host.state.requests.length >= insideOf(inside).length);
  host.state.requests = [];
  location = `https://127.0.0.2:${inside}/`;
  await fetched('other.test');
  assert.ok(host.state.requests.length > 0, 'it was dialled where the first answer led');
  host.state.requests = [];
  await fetched('other.test');
  assert.deepEqual(host.state.requests, []);
  assert.deepEqual(caught, []);
});

test('an MCP server leads its client to no place inside, by a redirect or by the second answer for its name', async (t) => {
  const world = await egressWorld(t, { policy: { mode: 'open' } });
  const get = (host: string, path: string) =>
    exchange(
      world.socketPath,
      `GET http://${host}${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
    );
  for (const location of ['http://169.254.169.254/latest', 'http://127.0.0.1/', 'http://10.0.0.1/']) {
    const before = world.dialled.length;
    const answer = await get('redirect.test', `/to/${encodeURIComponent(location)}`);
    assert.match(answer, /^HTTP\/1\.1 302 /);
    // The redirect is for the client, and its next request passes the same way out.
    assert.match(await get(new URL(location).host, new URL(location).pathname), /^HTTP\/1\.1 4\d\d /);
    assert.deepEqual(world.dialled.slice(before), ['93.184.216.3:80']);
  }
  world.names.set('rebinding.test', ['93.184.216.1']);
  assert.match(await get('rebinding.test', '/'), /^HTTP\/1\.1 200 /);
  const before = world.dialled.length;
  world.names.set('rebinding.test', ['169.254.169.254']);
  const { socket, status } = await openTunnel(world.socketPath, 'rebinding.test:443');
  socket.destroy();
  assert.ok(status >= 400, String(status));
  assert.match(await get('rebinding.test', '/'), /^HTTP\/1\.1 4\d\d /);
  assert.deepEqual(world.dialled.slice(before), []);
});
