import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { status as codes } from '@grpc/grpc-js';
import { a2aCapabilities } from '../../src/domain/a2a-capabilities.ts';
import { newId } from '../../src/domain/ids.ts';
import { createGrpcListener, type GrpcListener } from '../../src/edges/a2a/grpc/listener.ts';
import { grpcWire } from '../support/a2a-grpc.ts';
import { grpcOperations } from '../support/a2a-grpc-operations.ts';
import { edgeWorld, type EdgeWorld } from '../support/edge-world.ts';
import { hostFetch } from '../support/host-fetch.ts';
import {
  a2a,
  get,
  message,
  message03,
  operations,
  post,
  proto03,
  rpc,
  v03,
  v1,
  type Asked,
} from '../support/host-operations.ts';

// oxlint-disable-next-line no-explicit-any -- tests read into answers of all operations
type Told = any;

let world: EdgeWorld;
let at: typeof fetch;
let host: string;
let grpcPort: number;
let grpc: GrpcListener;
let wire: ReturnType<typeof grpcWire>;

before(async () => {
  const addresses = { baseUrl: 'https://berth.example.com', appDomain: 'agents.example.com' };
  world = await edgeWorld({ app: { addresses } });
  at = hostFetch(Number(new URL(await world.listen()).port));
  host = `${world.agent.id}.agents.example.com`;
  grpc = createGrpcListener(world.app.edge, 10);
  grpcPort = await grpc.listen(0, '127.0.0.1');
  wire = grpcWire(grpcPort);
});
after(async () => {
  wire?.close();
  await grpc?.close(0);
  await world?.close();
});

async function ask({ method, path, body, headers = {} }: Asked) {
  const init: RequestInit = {
    method,
    headers: {
      authorization: `Bearer ${world.keys.use}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  };
  const reply = await at(`http://${host}${path}`, init);
  const text = await reply.text();
  const json = (text === '' ? null : JSON.parse(text.replace(/^data: /, ''))) as Told;
  return { status: reply.status, headers: reply.headers, text, json };
}

const card = (headers: Record<string, string>) => ask(get('/.well-known/agent-card.json', headers));

test('a card names every binding in order, at the https address of the agent, and the scheme of its key', async () => {
  const base = `https://${host}`;
  const { json: current } = await card(v1);
  assert.deepEqual(current.supportedInterfaces, [
    { url: `${base}/a2a`, protocolBinding: 'JSONRPC', protocolVersion: '1.0' },
    { url: `${base}/a2a/http`, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0' },
    { url: `${base}/a2a`, protocolBinding: 'JSONRPC', protocolVersion: '0.3' },
    { url: `${base}/a2a/http`, protocolBinding: 'HTTP+JSON', protocolVersion: '0.3' },
  ]);
  const scheme = current.securitySchemes.bearer.httpAuthSecurityScheme;
  assert.deepEqual([Object.keys(current.securitySchemes), scheme.scheme], [['bearer'], 'Bearer']);
  assert.deepEqual(Object.keys(current.securityRequirements[0].schemes), ['bearer']);
  const { json: old } = await card({});
  assert.deepEqual([old.url, old.preferredTransport], [`${base}/a2a`, 'JSONRPC']);
  assert.deepEqual(old.additionalInterfaces, [{ url: `${base}/a2a/http`, transport: 'HTTP+JSON' }]);
  assert.deepEqual(old.supportedInterfaces, current.supportedInterfaces);
  assert.deepEqual(
    [old.securitySchemes.bearer.type, old.securitySchemes.bearer.scheme, old.security],
    ['http', 'Bearer', [{ bearer: [] }]],
  );
  for (const one of [current, old]) {
    const head = JSON.parse(Buffer.from(one.signatures[0].protected, 'base64url').toString());
    assert.equal(head.jku, 'https://agents.example.com/.well-known/jwks.json');
    assert.ok(!JSON.stringify(one).includes('http://'), 'nothing is told of plain HTTP');
  }
  // The same by the query, and the header wins.
  assert.deepEqual((await ask(get('/.well-known/agent-card.json?A2A-Version=1.0'))).json.url, undefined);
  assert.equal((await ask(get('/.well-known/agent-card.json?A2A-Version=1.0', v03))).json.url, old.url);
  assert.equal((await ask(get('/.well-known/agent-card.json?A2A-Version=7.0'))).status, 400);
});

test('gRPC comes after the other bindings of its version when it is served, and is nowhere when it is not', async () => {
  const { addresses } = world.app.edge;
  const bindings = async () =>
    (await card(v1)).json.supportedInterfaces.map((one: Told) => [one.protocolBinding, one.protocolVersion]);
  addresses.a2aGrpcPort = 443;
  const all = await bindings();
  delete addresses.a2aGrpcPort;
  assert.deepEqual(all, [
    ['JSONRPC', '1.0'],
    ['HTTP+JSON', '1.0'],
    ['GRPC', '1.0'],
    ['JSONRPC', '0.3'],
    ['HTTP+JSON', '0.3'],
    ['GRPC', '0.3'],
  ]);
  assert.equal((await bindings()).length, 4);
  const grpcType = { 'content-type': 'application/grpc' };
  const reply = await ask(post('/lf.a2a.v1.A2AService/GetTask', {}, grpcType));
  assert.ok(reply.status >= 400, reply.text);
});

const notSupported = {
  push: { rpc: -32003, reason: 'PUSH_NOTIFICATION_NOT_SUPPORTED' },
  other: { rpc: -32004, reason: 'UNSUPPORTED_OPERATION' },
};

/** Every operation of A2A that needs a capability, by every binding over HTTP. */
function needing(): { name: string; asked: Asked }[] {
  const ids = { agentId: world.agent.id, runId: newId(), conversationId: newId(), messageId: newId() };
  const named = operations
    .filter(({ name }) => /^A2A .*(push|stream|subscri)/i.test(name))
    .map(({ name, ask: of }) => ({ name, asked: of(ids) }));
  const url = 'https://example.com/x';
  const taskPushNotificationConfig = { url };
  const old = { pushNotificationConfig: { url } };
  const sends: [string, Asked][] = [
    [
      '1.0 JSON-RPC',
      rpc('SendMessage', { message: message({}), configuration: { taskPushNotificationConfig } }),
    ],
    [
      '1.0 HTTP',
      post(
        `${a2a}/message:send`,
        { message: message({}), configuration: { taskPushNotificationConfig } },
        v1,
      ),
    ],
    ['0.3 JSON-RPC', rpc('message/send', { message: message03({}), configuration: old }, v03)],
    [
      '0.3 HTTP',
      post(`${a2a}/v1/message:send`, { ...proto03({}), configuration: { pushNotification: { url } } }, v03),
    ],
  ];
  const streams: [string, Asked][] = [
    ['1.0 JSON-RPC', rpc('SendStreamingMessage', { message: message({}) })],
    ['1.0 HTTP', post(`${a2a}/message:stream`, { message: message({}) }, v1)],
    ['0.3 JSON-RPC', rpc('message/stream', { message: message03({}) }, v03)],
    ['0.3 HTTP', post(`${a2a}/v1/message:stream`, proto03({}), v03)],
  ];
  const cards: [string, Asked][] = [
    ['1.0 JSON-RPC', rpc('GetExtendedAgentCard', {})],
    ['1.0 HTTP', get(`${a2a}/extendedAgentCard`, v1)],
  ];
  const more =
    (what: string) =>
    ([binding, asked]: [string, Asked]) => ({ name: `A2A ${binding} ${what}`, asked });
  return [
    ...named,
    ...sends.map(more('send of a new task with a push configuration')),
    ...streams.map(more('stream of a new task')),
    ...cards.map(more('extended card')),
  ];
}

test('what the card does not declare is refused with its own error by every binding, before anything is done', async () => {
  const { edge } = world.app;
  const ids = { runId: newId(), conversationId: newId() };
  const byGrpc = grpcOperations
    .filter(({ name }) => /push|stream|subscri/i.test(name))
    .map(({ name, version, method, request }) => ({ name, version, method, request: request(ids) }));
  byGrpc.push({
    name: 'A2A 1.0 gRPC extended card',
    version: '1.0',
    method: 'GetExtendedAgentCard',
    request: { tenant: '' },
  });
  const overHttp = needing();
  assert.ok(overHttp.length >= 36 && byGrpc.length >= 13, `${overHttp.length} ${byGrpc.length}`);
  /** `isServed`: nobody would end a task that is new. */
  const told = async (isServed: boolean) => {
    const all = new Map<string, string>();
    for (const { name, asked } of overHttp) {
      if (isServed && /new task/.test(name)) continue;
      const { status, json } = await ask(asked);
      // The HTTP binding of 0.3 tells the code alone, all others the reason as well.
      const error = json?.error ?? json;
      const reason = error?.data?.[0]?.reason ?? error?.details?.[0]?.reason ?? '';
      all.set(name, `${status} ${error?.code} ${reason}`);
    }
    for (const { name, ...asked } of byGrpc) {
      const key = world.keys.use;
      const reply = await wire.call({ ...asked, agentId: world.agent.id, key, options: { host } });
      all.set(name, `${reply.code} ${reply.reason}`);
    }
    return all;
  };
  edge.addresses.a2aGrpcPort = grpcPort;
  edge.addresses.a2aCapabilities = [];
  const sends = world.core.sends.length;
  const refused = await told(false);
  for (const version of [v1, v03]) {
    const { capabilities, supportsAuthenticatedExtendedCard: old } = (await card(version)).json;
    for (const name of a2aCapabilities) assert.ok(!capabilities[name], name);
    assert.ok(!old);
  }
  delete edge.addresses.a2aCapabilities;
  assert.equal(world.core.sends.length, sends, 'nothing was begun');
  const served = await told(true);
  delete edge.addresses.a2aGrpcPort;
  for (const [name, answer] of refused) {
    const { rpc: code, reason } = /push/i.test(name) ? notSupported.push : notSupported.other;
    const expected = name.includes('gRPC')
      ? `${codes.FAILED_PRECONDITION} ${reason}`
      : name.includes('JSON-RPC')
        ? name.includes('0.3')
          ? `200 ${code} `
          : `200 ${code} ${reason}`
        : name.includes('0.3')
          ? `400 ${code} `
          : `400 400 ${reason}`;
    assert.equal(answer, expected, name);
    assert.notEqual(served.get(name), answer, `${name} is there when it is declared`);
  }
});
