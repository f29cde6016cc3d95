import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test, type TestContext } from 'node:test';
import type { ConversationEvent, EventBody } from '../../src/domain/events.ts';
import { limits } from '../../src/domain/limits.ts';
import type { Part } from '../../src/domain/parts.ts';
import { Connections } from '../../src/edges/acp/connections.ts';
import { withoutVoid } from '../../src/edges/acp/past.ts';
import { UpdateMapper } from '../../src/edges/acp/updates.ts';
import { HostSocket } from '../support/acp-client.ts';
import { edgeWorld, type EdgeWorld } from '../support/edge-world.ts';

const runId = 'run';
const usage = { inputTokens: 1, outputTokens: 1, cost: '0.000001' };

function logOf(...bodies: EventBody[]): ConversationEvent[] {
  return bodies.map((body, index) => ({
    ...body,
    conversationId: 'c',
    runId,
    seq: index + 1,
    at: new Date(0),
  }));
}

const delta = (messageId: string, text: string): EventBody => ({
  type: 'message.delta',
  data: { runId, messageId, text },
});
const message = (id: string, role: 'user' | 'assistant', content: string): EventBody => ({
  type: 'message.created',
  data: { id, agentId: 'a', conversationId: 'c', runId, role, content, createdAt: new Date(0).toISOString() },
});
const told = (events: ConversationEvent[], isOwn = false) =>
  new UpdateMapper()
    .map(events, () => isOwn)
    .map(({ seq, update }) => [
      seq,
      update.sessionUpdate,
      'content' in update && update.content && 'text' in update.content ? update.content.text : '',
    ]);

test('Pieces of an answer that come together are one update, with the place of the last; the whole answer adds what is missing.', () => {
  const events = logOf(
    message('u', 'user', 'hi'),
    delta('m', 'a'),
    delta('m', 'b'),
    message('m', 'assistant', 'abc'),
  );
  assert.deepEqual(told(events), [
    [1, 'user_message_chunk', 'hi'],
    [4, 'agent_message_chunk', 'abc'],
  ]);
  assert.deepEqual(told(events, true), [[4, 'agent_message_chunk', 'abc']]);
  // Old deltas are not in the log any more.
  assert.deepEqual(told(logOf(message('m', 'assistant', 'whole'))), [[1, 'agent_message_chunk', 'whole']]);
});

test('What a later attempt made void is left out of the past, and told as a notice where it was shown.', () => {
  const retrying: EventBody = {
    type: 'run.retrying',
    data: { runId, attempt: 2, reason: 'x', discardedMessageId: 'm1' },
  };
  const events = logOf(delta('m1', 'half'), retrying, delta('m2', 'all'), message('m2', 'assistant', 'all'));
  assert.deepEqual(told(withoutVoid(events), true), [[3, 'agent_message_chunk', 'all']]);
  assert.deepEqual(
    told(events, true).map(([, kind]) => kind),
    ['agent_message_chunk', 'notice', 'agent_message_chunk'],
  );
});

const bytes = Buffer.from('content').toString('base64');
const artifact = (artifactId: string, parts: Part[], more: { append?: boolean } = {}): EventBody => ({
  type: 'artifact.updated',
  data: { runId, artifactId, name: 'N', description: null, append: false, lastChunk: true, parts, ...more },
});

test('An artifact is told as the blocks that fit its parts, each with the artifact that it belongs to.', () => {
  const events = logOf(
    artifact('a b', [
      { kind: 'text', text: 'words' },
      { kind: 'data', data: { key: 42 }, mediaType: 'application/json' },
      { kind: 'link', name: null, mediaType: 'text/html', url: 'https://example.com/' },
      { kind: 'file', name: 'a.png', mediaType: 'image/png', bytes },
      { kind: 'file', name: null, mediaType: 'audio/wav', bytes },
      { kind: 'file', name: 'a 1.pdf', mediaType: 'application/pdf', bytes },
    ]),
    artifact('a b', [{ kind: 'text', text: ' and more' }], { append: true }),
  );
  for (const isOwn of [true, false]) {
    const updates = new UpdateMapper().map(events, () => isOwn).map(({ update }) => update);
    assert.deepEqual(
      updates.map((update) => update.sessionUpdate === 'agent_message_chunk' && update.content),
      [
        { type: 'text', text: 'words' },
        {
          type: 'resource',
          resource: {
            uri: 'berth:artifact/a%20b/2.json',
            mimeType: 'application/json',
            text: '{"key":42}',
          },
        },
        {
          type: 'resource_link',
          uri: 'https://example.com/',
          name: 'https://example.com/',
          mimeType: 'text/html',
        },
        { type: 'image', data: bytes, mimeType: 'image/png' },
        { type: 'audio', data: bytes, mimeType: 'audio/wav' },
        {
          type: 'resource',
          resource: { uri: 'berth:artifact/a%20b/6/a%201.pdf', mimeType: 'application/pdf', blob: bytes },
        },
        { type: 'text', text: ' and more' },
      ],
    );
    const about = { id: 'a b', name: 'N', description: null };
    assert.deepEqual(
      updates.map(({ _meta }) => (_meta!['berth.dev'] as { artifact: object }).artifact),
      [
        { ...about, append: false, lastChunk: false },
        ...[2, 3, 4, 5].map(() => ({ ...about, append: true, lastChunk: false })),
        { ...about, append: true, lastChunk: true },
        { ...about, append: true, lastChunk: true },
      ],
    );
  }
});

test('What a later attempt made void of artifacts is left out of the past too, and told as a notice where it was shown.', () => {
  const retrying: EventBody = {
    type: 'run.retrying',
    data: { runId, attempt: 2, reason: 'x', discardedMessageId: null },
  };
  const made = (text: string) => artifact('a', [{ kind: 'text', text }]);
  const events = logOf(made('lost'), retrying, made('kept'));
  assert.deepEqual(told(withoutVoid(events)), [[3, 'agent_message_chunk', 'kept']]);
  assert.deepEqual(
    told(events).map(([, kind, text]) => [kind, text]),
    [
      ['agent_message_chunk', 'lost'],
      ['notice', ''],
      ['agent_message_chunk', 'kept'],
    ],
  );
});

test('The past shows what a user sent beside the text, under the id of the message.', () => {
  const sent = message('u', 'user', 'look');
  assert.ok(sent.type === 'message.created');
  sent.data.parts = [
    { kind: 'file', name: 'a.png', mediaType: 'image/png', bytes },
    { kind: 'data', data: [1], mediaType: 'application/json' },
  ];
  assert.deepEqual(
    new UpdateMapper().map(logOf(sent), () => false).map(({ update }) => update),
    [
      { type: 'text', text: 'look' },
      { type: 'image', data: bytes, mimeType: 'image/png' },
      {
        type: 'resource',
        resource: { uri: 'berth:message/u/2.json', mimeType: 'application/json', text: '[1]' },
      },
    ].map((content) => ({ sessionUpdate: 'user_message_chunk', messageId: 'u', content })),
  );
  assert.deepEqual(told(logOf(sent), true), [], 'who sent it knows it');
});

test('The end of a run is an update for those who did not begin it, and says how it ended.', () => {
  const end = logOf({
    type: 'run.failed',
    data: { runId, error: { code: 'timeout', error: 'late' }, usage },
  });
  assert.deepEqual(told(end, true), []);
  const [found] = new UpdateMapper().map(end, () => false);
  assert.deepEqual(found!.update._meta, {
    'berth.dev': { run: { id: runId, status: 'failed', error: { code: 'timeout', error: 'late' } } },
  });
});

test('A key has so many connections and no more, and one is found by its own key and agent alone.', () => {
  const connections = new Connections();
  const made = Array.from({ length: limits.acpConnectionsPerKey }, () =>
    connections.open('key', 'agent', true),
  );
  assert.throws(() => connections.open('key', 'agent', false), { code: 'rate_limited' });
  connections.open('another key', 'agent', true);
  connections.remove(made[0]!);
  const one = connections.open('key', 'agent', false);
  connections.name(one, 'id');
  assert.equal(connections.find('id', 'key', 'agent'), one);
  assert.equal(connections.find('id', 'another key', 'agent'), null);
  assert.equal(connections.find('id', 'key', 'another agent'), null);
  connections.remove(one);
  assert.equal(connections.find('id', 'key', 'agent'), null);
});

async function opened(t: TestContext, world: EdgeWorld): Promise<HostSocket> {
  const { port } = new URL(await world.listen());
  const socket = new HostSocket(`ws://${world.agent.id}.agents.localhost:${port}/acp`, [], {
    headers: { authorization: `Bearer ${world.keys.owner}` },
  });
  t.after(() => socket.terminate());
  await once(socket, 'open');
  return socket;
}

test('Each request over a WebSocket counts against the rate limit of its key, and the connection outlives a refusal.', async (t) => {
  const world = await edgeWorld({
    services: (services) => ({
      ...services,
      rateLimit: {
        ...services.rateLimit,
        take: (keyId) => services.rateLimit.take(keyId, { quota: 4, windowSeconds: 3600 }),
      },
    }),
  });
  t.after(() => world.close());
  const socket = await opened(t, world);
  const ask = async (method: string, params: object) => {
    socket.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }));
    const [data] = await once(socket, 'message');
    return JSON.parse(String(data)) as {
      result?: object;
      error?: { code: number; data: { retryAfterSeconds: number } };
    };
  };
  assert.ok((await ask('initialize', { protocolVersion: 1 })).result);
  // The upgrade was the first.
  for (let count = 0; count < 3; count += 1) assert.ok((await ask('session/list', {})).result);
  const { error } = await ask('session/list', {});
  assert.equal(error?.code, -32013);
  assert.ok(error.data.retryAfterSeconds > 0);
  assert.equal((await ask('session/list', {})).error?.code, -32013);
});

test('A session id that is too long is told for its message alone, and the WebSocket goes on.', async (t) => {
  const world = await edgeWorld();
  t.after(() => world.close());
  const socket = await opened(t, world);
  // oxlint-disable-next-line no-explicit-any -- the test reads into answers of several methods
  const answers = new Map<unknown, (answer: any) => void>();
  socket.on('message', (data: Buffer) => {
    const answer = JSON.parse(String(data)) as { id?: unknown };
    answers.get(answer.id)?.(answer);
  });
  const answerTo = (id: unknown, message: object) => {
    // oxlint-disable-next-line no-explicit-any -- as above
    const answered = new Promise<any>((resolve, reject) => {
      answers.set(id, resolve);
      socket.once('close', (code) => reject(new Error(`closed with ${code} before ${id} was answered`)));
    });
    socket.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
    return answered;
  };
  const ask = (id: unknown, method: string, params: object) => answerTo(id, { id, method, params });
  await ask(0, 'initialize', { protocolVersion: 1 });
  const { sessionId } = (await ask(1, 'session/new', { cwd: '/', mcpServers: [] })).result;
  const long = 'x'.repeat(limits.acpIdChars + 1);
  for (const [id, method, params] of [
    [3, 'session/load', { cwd: '/', mcpServers: [] }],
    ['four', 'session/prompt', { prompt: [{ type: 'text', text: 'x' }] }],
    [5, 'session/close', {}],
    [6, 'session/nonsense', {}],
  ] as const) {
    const { error } = await ask(id, method, { ...params, sessionId: long });
    assert.deepEqual([error.code, error.message], [-32602, 'sessionId: must have at most 256 characters.']);
  }
  const told = await answerTo(null, { method: 'session/cancel', params: { sessionId: long } });
  assert.equal(told.error.code, -32602);
  const unknown = await ask(7, 'session/load', { sessionId: long.slice(1), cwd: '/', mcpServers: [] });
  assert.equal(unknown.error.code, -32002);
  assert.ok((await ask(8, 'session/resume', { sessionId, cwd: '/', mcpServers: [] })).result);
});
