import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { variedFiles } from '../support/acp-agents.ts';
import { communicationApi, type Answer } from '../support/agent-communication.ts';
import { hostFetch } from '../support/host-fetch.ts';
import { workshop, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';

let service: Service;
let shop: Workshop;
let demo: string;
let varied: string;
let call: ReturnType<typeof communicationApi>;
let asked: ReturnType<typeof communicationApi>;

before(async () => {
  service = await startService();
  shop = await workshop(service);
  demo = (await shop.agent({ 'AGENTS.md': 'x\n' }, { name: 'Café Räuber 7' })).id;
  varied = (await shop.agent(variedFiles)).id;
  call = communicationApi(service.port, demo, service.key);
  asked = communicationApi(service.port, varied, service.key);
});
after(async () => {
  await shop?.close();
  await service?.end();
});

const says = (content: string, more: object = {}) => ({
  agent_name: demo,
  input: [{ role: 'user', parts: [{ content_type: 'text/plain', content }] }],
  ...more,
});
const asks = (content: string, more: object = {}) => ({ ...says(content, more), agent_name: varied });
const textOf = ({ body }: Answer) =>
  body.output
    .flatMap((message: { parts: { content?: string }[] }) => message.parts.map((part) => part.content))
    .join('');
const types = ({ events }: Answer) => events.map((event) => event.type);

test('Ping needs no key, everything else does, and every failure has the error of the protocol.', async () => {
  assert.equal((await call('GET', '/ping', undefined, { authorization: '' })).status, 200);
  const refused = await call('GET', '/agents', undefined, { authorization: 'Bearer nonsense' });
  assert.equal(refused.status, 401);
  assert.ok(refused.headers.get('www-authenticate'));
  for (const [method, path, body, status, code] of [
    ['GET', `/agents/somebody`, undefined, 404, 'not_found'],
    ['GET', `/runs/${randomUUID()}`, undefined, 404, 'not_found'],
    ['GET', `/runs/nonsense/events`, undefined, 404, 'not_found'],
    ['POST', `/runs/${randomUUID()}/cancel`, {}, 404, 'not_found'],
    [
      'POST',
      `/runs/${randomUUID()}`,
      { run_id: randomUUID(), await_resume: {}, mode: 'sync' },
      404,
      'not_found',
    ],
    ['GET', `/session/${randomUUID()}`, undefined, 404, 'not_found'],
    ['GET', '/agents?limit=0', undefined, 400, 'invalid_input'],
    ['DELETE', '/runs', undefined, 405, 'invalid_input'],
    ['POST', '/runs', '{"agent_name"', 400, 'invalid_input'],
    ['POST', '/runs', { agent_name: demo }, 400, 'invalid_input'],
    ['POST', '/runs', says('x', { agent_name: 'somebody' }), 404, 'not_found'],
    ['POST', '/runs', says('x', { mode: 'soon' }), 400, 'invalid_input'],
    ['POST', '/runs', says('x', { session_id: 'mine' }), 400, 'invalid_input'],
    ['POST', '/runs', says(''), 400, 'invalid_input'],
    ['POST', '/runs', 'x'.repeat(7 * 1024 * 1024), 413, 'invalid_input'],
  ] as const) {
    const answer = await call(method, path, body);
    assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
    assert.equal(answer.body.code, code, `${method} ${path}: ${answer.text}`);
  }
});

test('The agent is listed, and goes by its id and by its name.', async () => {
  const { body } = await call('GET', '/agents');
  assert.deepEqual(
    body.agents.map((agent: { name: string }) => agent.name),
    [demo],
  );
  assert.deepEqual((await call('GET', '/agents?limit=1&offset=1')).body.agents, []);
  for (const name of [demo, 'cafe-rauber-7'])
    assert.equal((await call('GET', `/agents/${name}`)).body.name, demo);
});

test('A run in each of the three modes gives the same answer, and its status, events and session can be read.', async () => {
  const sync = await call('POST', '/runs', says('say: three words here'));
  assert.equal(sync.status, 200);
  assert.equal(sync.body.status, 'completed');
  assert.equal(textOf(sync), 'three words here');

  const later = await call('POST', '/runs', says('say: three words here', { mode: 'async' }));
  assert.equal(later.status, 202);
  const read = () => call('GET', `/runs/${later.body.run_id}`);
  await until('it has completed', async () => (await read()).body.status === 'completed');
  assert.equal(textOf(await read()), 'three words here');

  const stream = await call('POST', '/runs', says('slow: 5 20', { mode: 'stream' }));
  assert.equal(stream.status, 200);
  const told = types(stream).filter((type) => type !== 'generic');
  assert.deepEqual(told.slice(0, 3), ['run.created', 'run.in-progress', 'message.created']);
  assert.deepEqual(told.slice(-2), ['message.completed', 'run.completed']);
  const parts = stream.events
    .filter((event) => event.type === 'message.part')
    .map((event) => event.part.content);
  assert.equal(parts.join(''), '1 2 3 4 5 ');
  const { run } = stream.events.at(-1);
  assert.equal(run.output[0].parts[0].content, '1 2 3 4 5 ');
  const { events } = (await call('GET', `/runs/${run.run_id}/events`)).body;
  assert.deepEqual(
    events.map((event: { type: string }) => event.type).filter((type: string) => type !== 'generic'),
    told,
  );
});

test('A session that the client names holds its runs, and its history leads to messages.', async () => {
  const session_id = randomUUID();
  const first = await call('POST', '/runs', says('say: one', { session_id }));
  assert.equal(first.body.session_id, session_id);
  await call('POST', '/runs', says('say: two', { session: { id: session_id, history: [] } }));
  const { body } = await call('GET', `/session/${session_id}`);
  assert.equal(body.id, session_id);
  assert.equal(body.history.length, 4);
  const fetch = hostFetch(service.port);
  const messages = await Promise.all(
    body.history.map(async (url: string) =>
      (await fetch(url, { headers: { authorization: `Bearer ${service.key}` } })).json(),
    ),
  );
  assert.deepEqual(
    messages.map((message) => [message.role, message.parts[0].content]),
    [
      ['user', 'say: one'],
      [`agent/${demo}`, 'one'],
      ['user', 'say: two'],
      [`agent/${demo}`, 'two'],
    ],
  );
  // What is at this server is not fetched into another session either, and said so.
  const copied = await call(
    'POST',
    '/runs',
    says('say: three', { session: { id: randomUUID(), history: body.history } }),
  );
  assert.equal(copied.status, 400);
  assert.match(copied.text, /session\.history.*not fetched, from this server neither/);
  // Another agent's host knows nothing of it, also with a key that may see both.
  assert.equal((await asked('GET', `/session/${session_id}`)).status, 404);
  assert.equal((await asked('GET', `/runs/${first.body.run_id}`)).status, 404);
  // There the same id is another session: nobody can tell that it is taken elsewhere.
  const own = await asked('POST', '/runs', asks('x', { session_id, mode: 'async' }));
  assert.deepEqual([own.status, own.body.session_id], [202, session_id]);
  assert.equal((await call('GET', `/session/${session_id}`)).body.history.length, 4);
});

test('A run is cancelled, once.', async () => {
  const { body } = await call('POST', '/runs', says('slow: 500 50', { mode: 'async' }));
  const cancelled = await call('POST', `/runs/${body.run_id}/cancel`);
  assert.equal(cancelled.status, 202);
  assert.ok(['cancelling', 'cancelled'].includes(cancelled.body.status));
  const read = async () => (await call('GET', `/runs/${body.run_id}`)).body.status;
  await until('it is cancelled', async () => (await read()) === 'cancelled');
  const done = await call('POST', '/runs', says('say: x'));
  assert.equal((await call('POST', `/runs/${done.body.run_id}/cancel`)).status, 409);
});

test('A run that asks awaits, and is resumed in each mode with the words of a client.', async () => {
  const words = (content: string) => ({
    type: 'message',
    message: { role: 'user', parts: [{ content_type: 'text/plain', content }] },
  });
  const waiting = await asked('POST', '/runs', asks('ask'));
  assert.equal(waiting.status, 200);
  assert.equal(waiting.body.status, 'awaiting');
  assert.equal(waiting.body.await_request.type, 'message');
  assert.equal(waiting.body.await_request.request.kind, 'permission');
  const { run_id } = waiting.body;
  const wrong = await asked('POST', `/runs/${run_id}`, {
    run_id,
    await_resume: words('maybe'),
    mode: 'sync',
  });
  assert.equal(wrong.status, 400);
  for (const await_resume of [
    { option_id: { toString: 1 } },
    { message: { parts: [null] } },
    { message: { parts: [{ content: { toString: 1 } }] } },
    { message: 1 },
  ]) {
    const unread = await asked('POST', `/runs/${run_id}`, { run_id, await_resume, mode: 'sync' });
    assert.deepEqual([unread.status, unread.body.code], [400, 'invalid_input'], unread.text);
  }
  const done = await asked('POST', `/runs/${run_id}`, { run_id, await_resume: words('Yes'), mode: 'sync' });
  assert.equal(done.body.status, 'completed');
  assert.match(textOf(done), /heard yes/);
  const again = await asked('POST', `/runs/${run_id}`, { run_id, await_resume: words('yes'), mode: 'sync' });
  assert.equal(again.status, 409);

  const stream = await asked('POST', '/runs', asks('form', { mode: 'stream' }));
  assert.equal(types(stream).at(-1), 'run.awaiting');
  const form = stream.events.at(-1).run;
  assert.equal(form.await_request.message.parts[0].content, 'Who?');
  const rest = await asked('POST', `/runs/${form.run_id}`, {
    run_id: form.run_id,
    await_resume: words('Ada'),
    mode: 'stream',
  });
  assert.equal(types(rest)[0], 'run.in-progress');
  assert.equal(types(rest).at(-1), 'run.completed');
  assert.match(JSON.stringify(rest.events.at(-1).run.output), /hello Ada/);

  const third = await asked('POST', '/runs', asks('form'));
  const async = await asked('POST', `/runs/${third.body.run_id}`, {
    run_id: third.body.run_id,
    await_resume: { content: { name: 'Bob' } },
    mode: 'async',
  });
  assert.equal(async.status, 202);
  await until(
    'it has completed',
    async () => (await asked('GET', `/runs/${third.body.run_id}`)).body.status === 'completed',
  );
});

test('What an agent makes is in its output, what it is sent reaches it, and a refusal is a failure.', async () => {
  const made = await asked('POST', '/runs', asks('all'));
  const parts = made.body.output[0].parts as { content_type: string; name?: string }[];
  assert.ok(parts.some((part) => part.content_type === 'image/png'));
  assert.ok(parts.some((part) => part.content_type === 'application/json' && part.name === 'Table'));
  const refused = await asked('POST', '/runs', asks('refuse'));
  assert.equal(refused.body.status, 'failed');
  assert.equal(refused.body.error.data.code, 'refused');
  const sent = await asked('POST', '/runs', {
    agent_name: varied,
    input: [
      {
        parts: [
          { content_type: 'text/plain', content: 'see' },
          { content_type: 'image/png', content: 'iVBORw0KGgo=', content_encoding: 'base64', name: 'a.png' },
          { content_type: 'text/html', content_url: 'https://example.com/page' },
          { content_type: 'application/json', content: '{"a":1}' },
        ],
      },
    ],
  });
  const blocks = JSON.parse(textOf(sent)) as { type: string }[];
  assert.deepEqual(
    blocks.map((block) => block.type),
    ['text', 'image', 'resource_link', 'resource'],
  );
});

test("The protocol's own client pings, lists, runs in each mode, and cancels.", async () => {
  const { Client } = createRequire(import.meta.url)('acp-sdk') as typeof import('acp-sdk');
  const at = hostFetch(service.port);
  const withKey: typeof fetch = (input, init) => {
    const headers = new Headers(init?.headers);
    headers.set('authorization', `Bearer ${service.key}`);
    return at(input, { ...init, headers });
  };
  const client = new Client({ baseUrl: `http://${demo}.localhost:${service.port}`, fetch: withKey });
  await client.ping();
  assert.equal((await client.agents())[0]!.name, demo);
  assert.equal((await client.agent(demo)).name, demo);
  await client.withSession(async (session) => {
    const run = await session.runSync(demo, 'say: by the client');
    assert.equal(run.session_id, session.sessionId);
    assert.equal(run.output[0]!.parts[0]!.content, 'by the client');
    const seen: string[] = [];
    for await (const event of session.runStream(demo, 'slow: 3 10'))
      if (event.type === 'message.part') seen.push(event.part.content ?? '');
    assert.equal(seen.join(''), '1 2 3 ');
  });
  const { run_id } = await client.runAsync(demo, 'slow: 500 50');
  assert.equal((await client.runStatus(run_id)).run_id, run_id);
  assert.ok(['cancelling', 'cancelled'].includes((await client.runCancel(run_id)).status));
  assert.ok((await client.runEvents(run_id)).length > 0);
  await assert.rejects(client.agent('somebody'), /ot found/);
});
