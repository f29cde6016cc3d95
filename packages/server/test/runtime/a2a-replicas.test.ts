import { newId } from '../../src/domain/ids.ts';
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { methods } from '@agentclientprotocol/sdk';
import { createHttpStream } from '@agentclientprotocol/sdk/experimental/http-client';
import { createBox } from '../../src/domain/box.ts';
import { createCursors } from '../../src/domain/paging.ts';
import { createApp } from '../../src/edges/app.ts';
import { createListener } from '../../src/edges/listener.ts';
import { openA2a } from '../../src/open-a2a.ts';
import { createAcpSessions } from '../../src/services/acp-sessions.ts';
import type { Caller, Services } from '../../src/services/api.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { visibleAgent } from '../../src/services/visible-agent.ts';
import { createAcpSessionStore } from '../../src/store/acp-sessions.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { message, sse } from '../support/a2a-world.ts';
import { acpClient, place } from '../support/acp-client.ts';
import { hostFetch } from '../support/host-fetch.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';
import { runWorld, type Replica, type RunWorld } from '../support/run-world.ts';

/** The agents' hosts of one replica, over its own connection to the database that all share. */
async function listen(t: TestContext, world: RunWorld, replica: Replica): Promise<typeof fetch> {
  const { db, runs, events, conversations } = replica;
  const agents = createAgentStore(db);
  const cursors = createCursors(randomBytes(32));
  const a2a = openA2a({
    nodeId: newId(),
    db,
    agents,
    box: createBox([randomBytes(32)]),
    holdEncryptionKey: async () => {},
    cursors,
    guard: createUrlGuard([]),
    log: silentLog,
  });
  const caller: Caller = { ...world.owner, rateLimit: { quota: 1_000, windowSeconds: 60 } };
  const allowed = {
    allowed: true,
    quota: 1,
    windowSeconds: 1,
    remaining: 1,
    resetSeconds: 1,
    retryAfterSeconds: 0,
  };
  const services = {
    auth: { authenticate: async () => caller },
    rateLimit: { take: () => allowed, peek: () => allowed, authFailure: () => null },
    agents: {
      get: (p: Caller, id: string) => visibleAgent(agents, p, id),
      find: (id: string) => agents.get(id),
    },
    runs,
    events,
    conversations,
    a2a: a2a.service,
    acpSessions: createAcpSessions({
      agents,
      acpSessions: createAcpSessionStore(db),
      conversations,
      cursors,
    }),
  } as unknown as Services;
  const app = createApp(services, {
    addresses: { baseUrl: 'http://localhost:8080', appDomain: 'agents.localhost:8080' },
    log: silentLog,
    probe: async () => [],
    heartbeatMs: 20,
  });
  const listener = createListener(app);
  const { port } = await listener.listen(0, '127.0.0.1');
  t.after(() => listener.close(0));
  return hostFetch(port);
}

test('a task is subscribed to on another replica than the one that runs it, whole, and kept alive by comments; a session of ACP is loaded there', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const gate = Promise.withResolvers<void>();
  t.after(() => gate.resolve());
  const one = await world.replica({
    // It counts the other one only once, and that one is there for as long.
    leaseMs: 600_000,
    script: async (turn) => {
      turn.onUpdate({ kind: 'text', text: 'one ' });
      await gate.promise;
      turn.onUpdate({ kind: 'text', text: 'two' });
      return { outcome: 'completed' };
    },
  });
  // It only answers: it takes up no run.
  const other = await world.replica({ start: false });
  // They learn of each other.
  await other.life.beat();
  await one.life.beat();
  const [atOne, atOther] = [await listen(t, world, one), await listen(t, world, other)];
  const origin = `http://${world.agentId}.agents.localhost:8080`;
  const headers = { 'content-type': 'application/json', 'a2a-version': '1.0', authorization: 'Bearer x' };
  const stream = await atOne(`${origin}/a2a/http/message:stream`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ message: message('go') }),
  });
  const told = sse(stream);
  const { id: taskId, contextId } = (await told.next()).value!.data.task as Record<
    'id' | 'contextId',
    string
  >;

  const quiet = await atOther(`${origin}/a2a/http/tasks/${taskId}:subscribe`, { headers });
  const reader = (quiet.body as unknown as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]();
  let seen = '';
  while (!/^:/m.test(seen)) seen += Buffer.from((await reader.next()).value as Uint8Array).toString();
  await reader.return?.();
  assert.match(seen, /^data: \{"task"/m);

  const bindings = {
    json: await atOther(`${origin}/a2a`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'SubscribeToTask', params: { id: taskId } }),
    }),
    http: await atOther(`${origin}/a2a/http/tasks/${taskId}:subscribe`, { headers }),
  };
  const http = { headers: { authorization: 'Bearer x' }, fetch: atOther, cookies: 'omit' } as const;
  const acp = await acpClient(createHttpStream(`${origin}/acp`, http));
  t.after(() => acp.close());
  await acp.agent.request(methods.agent.session.load, { sessionId: contextId, ...place });
  await until('the session has told what there is', () => acp.text() === 'one ');
  gate.resolve();
  for (const [name, response] of Object.entries(bindings)) {
    let text = '';
    let state = '';
    for await (const { data } of sse(response)) {
      const { task, artifactUpdate, statusUpdate } = data.result ?? data;
      if (task) text = task.artifacts?.[0]?.parts[0].text ?? '';
      if (artifactUpdate) text = (artifactUpdate.append ? text : '') + artifactUpdate.artifact.parts[0].text;
      state = (task ?? statusUpdate)?.status.state ?? state;
    }
    assert.deepEqual([text, state], ['one two', 'TASK_STATE_COMPLETED'], name);
  }
  await until('the session has told the end', () =>
    acp.updates.some(({ update }) => JSON.stringify(update._meta ?? {}).includes('"completed"')),
  );
  assert.equal(acp.text(), 'one two');
  await told.return(undefined);
});
