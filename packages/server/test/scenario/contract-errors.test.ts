import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { connect } from 'node:net';
import { after, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { limits } from '../../src/domain/limits.ts';
import { channelWithEvent, type MadeChannel } from '../support/channel-event.ts';
import { madeSchedule } from '../support/schedule.ts';
import { endpointWithDelivery, type MadeEndpoint } from '../support/webhook-endpoint.ts';
import { openapi, operations } from '../support/contract.ts';
import type { World } from '../support/scenario-world.ts';
import { endSharedWorld, sharedWorld } from '../support/scenario-world.ts';
import type { Reply } from '../support/service.ts';
import { until } from '../support/until.ts';

after(endSharedWorld);

const refused = (reply: Reply, status: number, code: string, name = '') =>
  assert.deepEqual([reply.status, reply.body?.code], [status, code], `${name} ${reply.text.slice(0, 300)}`);

/** Text that no error may repeat: it may be a secret. */
const canary = 'canary-5f1d2c';

let conversationId: string | undefined;
let channel: MadeChannel | undefined;
let scheduleId: string | undefined;
let endpoint: MadeEndpoint | undefined;

async function withBody() {
  const world = await sharedWorld();
  const calls = operations.filter(({ operation }) => operation.requestBody?.content['application/json']);
  conversationId ??= (await world.send('to be forked')).body.conversationId as string;
  channel ??= await channelWithEvent(world.call, world.service.url, world.agentId);
  endpoint ??= await endpointWithDelivery(world.call);
  const { endpointId, deliveryId } = endpoint;
  scheduleId ??= await madeSchedule(world.call, world.agentId);
  const { channelId, inboundEventId } = channel;
  const paths = calls.map(({ method, template }) => {
    const path = template
      .replace(/^\/(v1\/agents|sandbox)\/\{\w+\}/, `/$1/${world.agentId}`)
      .replace('/conversations/{id}', `/conversations/${conversationId}`)
      .replace('{channelId}', channelId)
      .replace('{inboundEventId}', inboundEventId)
      .replace('{scheduleId}', scheduleId!)
      .replace('{endpointId}', endpointId)
      .replace('{deliveryId}', deliveryId)
      .replace('{key}', 'TOKEN')
      .replace(/\{\w+\}/g, newId());
    return [method, path] as const;
  });
  return { world, paths: paths.filter(([, path]) => !/\/runs\//.test(path)) };
}

test('400 invalid_json: a body that is no JSON is refused on every call that takes one, and not repeated', async () => {
  const { world, paths } = await withBody();
  const broken = [`{"name": "${canary}`, canary, '{"a":1}}', `{'name':'${canary}'}`, '\u{feff}{}', '[1,]'];
  for (const [method, path] of paths) {
    for (const text of [...broken, Buffer.from([0x22, 0xff, 0xfe, 0x22])]) {
      const reply = await world.call(method, path, text);
      refused(reply, 400, 'invalid_json', `${method} ${path}`);
      assert.ok(!reply.text.includes(canary), reply.text);
    }
  }
});

test('400 invalid_request: an unknown field is refused by its name, in every body and query', async () => {
  const { world, paths } = await withBody();
  for (const [method, path] of paths) {
    const reply = await world.call(method, path, { nonsense: canary });
    refused(reply, 400, 'invalid_request', `${method} ${path}`);
    const found = reply.body.details.find((detail: { path: string }) => detail.path === 'nonsense');
    assert.equal(found?.message, 'unknown field');
    assert.ok(!reply.text.includes(canary), reply.text);
  }
  for (const { template } of operations.filter(
    (one) => one.method === 'GET' && !one.template.includes('{'),
  )) {
    const reply = await world.call('GET', `${template}?nonsense=1`);
    refused(reply, 400, 'invalid_request', template);
    assert.match(reply.body.error, /nonsense/);
  }
});

test('400 invalid_request: U+0000 and lone surrogates are refused wherever a text is taken', async () => {
  const { world, paths } = await withBody();
  for (const [method, path] of paths) {
    for (const text of [
      '{"name":"a\\u0000b"}',
      '{"content":"\\ud800"}',
      '{"value":"\\udc00x","a\\u0000":1}',
    ]) {
      refused(await world.call(method, path, text), 400, 'invalid_request', `${method} ${path} ${text}`);
    }
  }
  refused(await world.call('GET', '/v1/agents?cursor=%00'), 400, 'invalid_request');
});

test('400 invalid_request: a number that no double holds is refused wherever a body is taken', async () => {
  const { world, paths } = await withBody();
  for (const [method, path] of paths) {
    const reply = await world.call(method, path, '{"metadata":{"n":1e400}}');
    refused(reply, 400, 'invalid_request', `${method} ${path}`);
    assert.deepEqual(reply.body.details[0].path, 'metadata.n', `${method} ${path}`);
  }
});

test('400 invalid_cursor: a cursor that is made up, changed or of another list is refused', async () => {
  const world = await sharedWorld();
  for (let count = 0; count < 2; count += 1) {
    await world.send('for a page');
    await world.call('POST', `/v1/agents/${world.agentId}/api-keys`, { name: 'for a page' });
  }
  const lists = [
    '/v1/agents',
    `/v1/agents/${world.agentId}/runs`,
    `/v1/agents/${world.agentId}/conversations`,
  ];
  lists.push(`/v1/agents/${world.agentId}/api-keys`);
  const cursors = await Promise.all(
    lists.map(async (list) => (await world.call('GET', `${list}?limit=1`)).body.nextCursor as string),
  );
  for (const [index, list] of lists.entries()) {
    const own = cursors[index]!;
    assert.ok(own, `${list} has a second page`);
    const changed = `${own.slice(0, -2)}${own.endsWith('AA') ? 'BB' : 'AA'}`;
    const others = cursors.filter((cursor) => cursor !== own);
    for (const bad of ['x', 'AAAA', `${own}A`, changed, own.toUpperCase(), ...others]) {
      const reply = await world.call('GET', `${list}?limit=1&cursor=${bad}`);
      refused(reply, 400, 'invalid_cursor', `${list} ${bad}`);
    }
    // A cursor is bound to its list, and so to the organisation and the agent.
    const elsewhere = list.replace(world.agentId, world.otherAgentId);
    if (elsewhere !== list)
      refused(await world.call('GET', `${elsewhere}?cursor=${own}`), 400, 'invalid_cursor');
  }
});

test('404: an unknown route is JSON like everything, with a key and without', async () => {
  const world = await sharedWorld();
  for (const path of [
    '/v1',
    '/v1/nothing',
    '/v2/agents',
    '/api',
    '/api/v1/chat',
    '/nothing',
    '/v1/agents/',
  ]) {
    for (const headers of [{}, { authorization: '' }]) {
      for (const method of ['GET', 'POST', 'DELETE']) {
        refused(await world.call(method, path, undefined, headers), 404, 'not_found', `${method} ${path}`);
      }
    }
  }
});

test('a keyed request is told what is left also where there is nothing, and a key that is none is refused there too', async () => {
  const world = await sharedWorld();
  for (const [method, path, status, code] of [
    ['GET', '/v1/nothing', 404, 'not_found'],
    ['PUT', '/v1/agents', 405, 'method_not_allowed'],
  ] as const) {
    const reply = await world.call(method, path);
    refused(reply, status, code, path);
    assert.match(reply.headers.get('ratelimit') ?? '', /^"default";r=\d+;t=\d+$/, path);
    assert.ok(reply.headers.get('ratelimit-policy'), path);
    // Not by `call`, which knows only answers of calls that there are.
    const stranger = await fetch(world.service.url + path, {
      method,
      headers: { authorization: 'Bearer svc_live_nobody' },
    });
    const { code: reason } = (await stranger.json()) as { code: string };
    assert.deepEqual([stranger.status, reason], [401, 'key_invalid'], path);
  }
});

test('405: a path says in Allow exactly what it takes', async () => {
  const world = await sharedWorld();
  for (const [template, methods] of Object.entries(openapi.paths)) {
    const path = template
      .replace('{key}', 'TOKEN')
      .replace('{path}', 'a/b')
      .replace(/\{\w+\}/g, newId());
    const allowed = Object.keys(methods).map((method) => method.toUpperCase());
    if (allowed.includes('GET')) allowed.push('HEAD');
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
      if (allowed.includes(method)) continue;
      const reply = await world.call(method, path);
      refused(reply, 405, 'method_not_allowed', `${method} ${path}`);
      assert.deepEqual(reply.headers.get('allow')?.split(', ').sort(), allowed.toSorted(), template);
    }
  }
});

test('413: a body over 1 MiB is refused, declared or chunked; one of exactly 1 MiB is read', async () => {
  const { world, paths } = await withBody();
  const ofBytes = (bytes: number) => `{"name":"Large"${' '.repeat(bytes - 16)}}`;
  assert.equal(limits.bodyBytes, 1024 * 1024);
  assert.equal((await world.call('POST', '/v1/agents', ofBytes(limits.bodyBytes))).status, 201);
  for (const [method, path] of paths) {
    refused(await world.call(method, path, ofBytes(limits.bodyBytes + 1)), 413, 'body_too_large', path);
  }
  const chunked = request(`${world.service.url}/v1/agents`, {
    method: 'POST',
    agent: false,
    headers: { authorization: `Bearer ${world.keys.owner}`, 'content-type': 'application/json' },
  });
  chunked.on('error', () => {});
  const answered = once(chunked, 'response');
  for (let sent = 0; sent < 20; sent += 1) chunked.write(' '.repeat(64 * 1024));
  const [response] = (await answered) as [import('node:http').IncomingMessage];
  assert.equal(response.statusCode, 413);
  let text = '';
  response.setEncoding('utf8');
  for await (const chunk of response) text += chunk;
  assert.equal(JSON.parse(text).code, 'body_too_large');
  chunked.destroy();
});

test('413: the answer arrives whole also where the connection is closed after it', async () => {
  const { world } = await withBody();
  const body = Buffer.alloc(7 * 1024 * 1024, ' ');
  for (let round = 0; round < 20; round += 1) {
    const sent = request(`${world.service.url}/v1/agents`, {
      method: 'POST',
      agent: false,
      headers: {
        authorization: `Bearer ${world.keys.owner}`,
        'content-type': 'application/json',
        connection: 'close',
        'content-length': String(body.length),
      },
    });
    sent.end(body);
    // An error of the connection rejects; one after the answer is none of it any more.
    sent.on('error', () => {});
    const [response] = (await once(sent, 'response')) as [import('node:http').IncomingMessage];
    let text = '';
    response.setEncoding('utf8');
    for await (const chunk of response) text += chunk;
    assert.deepEqual([response.statusCode, JSON.parse(text).code], [413, 'body_too_large'], `round ${round}`);
  }
});

test('415: a body that is not declared as JSON in UTF-8 is refused on every call that takes one', async () => {
  const { world, paths } = await withBody();
  const types = ['text/plain', 'application/x-www-form-urlencoded', 'application/json; charset=latin1', ''];
  for (const [method, path] of paths) {
    for (const type of types) {
      const reply = await world.call(method, path, '{}', { 'content-type': type });
      refused(reply, 415, 'unsupported_media_type', `${method} ${path} ${type}`);
    }
  }
  for (const type of [
    'application/json',
    'Application/JSON;charset=UTF-8',
    'application/json; charset="utf-8"',
  ]) {
    const reply = await world.call('POST', '/v1/agents', '{"name":"Typed"}', { 'content-type': type });
    assert.equal(reply.status, 201, type);
  }
});

/** A run that is under way until `release(name)`. */
async function held(world: World, name: string, more: Record<string, unknown> = {}) {
  const sent = await world.send(`hold: ${name}`, more, { prefer: 'respond-async' });
  assert.equal(sent.status, 202, sent.text);
  await until('the model is asked', () =>
    world.model.requests.some((one) => one.bodyBytes.includes(`hold: ${name}`)),
  );
  return sent.body as { conversationId: string; runId: string };
}

test('409 conversation_busy: a send with onBusy "reject" into a busy conversation is refused and leaves no trace', async () => {
  const world = await sharedWorld();
  const { conversationId, runId } = await held(world, 'busy');
  const reply = await world.send('too early', { conversationId, onBusy: 'reject' });
  refused(reply, 409, 'conversation_busy');
  world.release('busy');
  await until('the run has ended', async () => {
    return (await world.call('GET', `/v1/runs/${runId}`)).body.run.status === 'completed';
  });
  const { messages } = (await world.call('GET', `/v1/conversations/${conversationId}/messages`)).body;
  assert.deepEqual(
    messages.map(({ content }: { content: string }) => content),
    ['HOLD: BUSY', 'hold: busy'],
  );
  assert.equal((await world.send('now', { conversationId, onBusy: 'reject' })).status, 200);
});

test('409 conflict: what has ended is not cancelled, what has failed is not activated', async () => {
  const world = await sharedWorld();
  const { runId } = (await world.send('ends')).body;
  refused(await world.call('POST', `/v1/runs/${runId}/cancel`), 409, 'conflict');
  assert.equal((await world.call('GET', `/v1/runs/${runId}`)).body.run.status, 'completed');
  const path = `/v1/agents/${world.agentId}/deployments`;
  const failed = await world.call('POST', path, { ref: 'no-such-branch' });
  assert.deepEqual([failed.status, failed.body.deployment.status], [201, 'failed']);
  const { id } = failed.body.deployment;
  refused(await world.call('POST', `${path}/${id}/activate`), 409, 'conflict');
});

test('429 queue_full: a conversation takes 100 waiting messages, and the next is told when to come again', async () => {
  const world = await sharedWorld();
  const { conversationId, runId } = await held(world, 'full');
  const async = { prefer: 'respond-async' };
  for (let count = 0; count < limits.queuedRunsPerConversation; count += 1) {
    assert.equal((await world.send(`waits ${count}`, { conversationId }, async)).status, 202);
  }
  const reply = await world.send('one too many', { conversationId }, async);
  refused(reply, 429, 'queue_full');
  assert.match(reply.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
  // Others are not concerned, and the conversation itself can be deleted with all that waits.
  assert.equal((await world.send('elsewhere')).status, 200);
  assert.equal((await world.call('DELETE', `/v1/conversations/${conversationId}`)).status, 204);
  world.release('full');
  refused(await world.call('GET', `/v1/runs/${runId}`), 404, 'not_found');
});

test('400: what is no HTTP at all is answered as JSON as well', async () => {
  const world = await sharedWorld();
  for (const bytes of ['NONSENSE\r\n\r\n', 'GET / HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n']) {
    const socket = connect(world.service.port, '127.0.0.1');
    socket.setEncoding('utf8').on('error', () => {});
    socket.write(bytes);
    let text = '';
    for await (const chunk of socket) text += chunk;
    assert.match(text, /^HTTP\/1\.1 400 /);
    assert.match(text, /\r\nContent-Type: application\/json\r\n/i);
    assert.match(text, /\r\nX-Request-Id: [0-9a-f-]{36}\r\n/i);
    assert.equal(JSON.parse(text.slice(text.indexOf('\r\n\r\n'))).code, 'invalid_request');
  }
});
