import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { methods } from '@agentclientprotocol/sdk';
import { variedFiles } from '../support/acp-agents.ts';
import { acpClient, acpStream, place, type Transport } from '../support/acp-client.ts';
import { Peer } from '../support/acp-peer.ts';
import { bridgeWire, type Target } from '../support/acp-wire.ts';
import { logOf, workshop } from '../support/scenario.ts';
import { scriptedAgent } from '../support/scripted-agent.ts';
import { startService } from '../support/service.ts';
import { a2aWorld, message, sse } from '../support/a2a-world.ts';
import { until } from '../support/until.ts';

const { session } = methods.agent;
const counted = (count: number) => Array.from({ length: count }, (_, index) => `${index + 1} `).join('');

test('After kill -9 in the middle of a prompt a client loads its session, over WebSocket and HTTP, and gets the rest; the bridge hides it, and each prompt is one run.', async (t) => {
  const service = await startService({ env: { BERTH_DETACH: 'auto' } });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());
  const agent = await shop.agent(scriptedAgent);
  const varied = await shop.agent(variedFiles);
  const target: Target = { port: service.port, agentId: agent.id, key: service.key, home: shop.home };
  const connect = (transport: Transport) =>
    acpClient(acpStream(transport, service.port, agent.id, service.key));

  const transports = ['websocket', 'http'] as const;
  const clients = await Promise.all(transports.map(connect));
  const sessions = await Promise.all(clients.map((client) => client.open()));
  const peer = new Peer(await bridgeWire(target));
  await peer.initialize();
  const bridged = await peer.open();
  const unsaid = await peer.open();
  const asking = new Peer(await bridgeWire({ ...target, agentId: varied.id }));
  asking.onRequest = () => null;
  await asking.initialize();
  const asked = await asking.open();
  const question = asking.begin('session/prompt', {
    sessionId: asked,
    prompt: [{ type: 'text', text: 'ask' }],
  });
  const requests = () => asking.requests('session/request_permission');
  await until('a question is put', () => requests().length === 1);
  const lost = clients.map((client, index) =>
    client.prompt(sessions[index]!, 'hold go-on').then(
      () => 'answered',
      () => 'lost',
    ),
  );
  const prompt = peer.begin('session/prompt', {
    sessionId: bridged,
    prompt: [{ type: 'text', text: 'hold go-on' }],
  });
  await until(
    'the turns have begun',
    () => clients.every((client) => client.text() !== '') && peer.text(bridged) !== '',
  );
  await service.kill9();
  assert.deepEqual(await Promise.all(lost), ['lost', 'lost']);
  // What is said while nobody listens is heard later.
  const list = peer.begin('session/list', {});
  await service.restart();

  const loaded = await Promise.all(transports.map(connect));
  t.after(() => loaded.forEach((client) => client.close()));
  for (const [index, client] of loaded.entries())
    await client.agent.request(session.load, { sessionId: sessions[index]!, ...place });
  await peer.answerTo(list);
  // Until now no turn could end, so that there is a rest for each.
  writeFileSync(join(service.dataDir, 'volumes', agent.id, 'workspace', 'go-on'), '');
  for (const [index, transport] of transports.entries()) {
    const sessionId = sessions[index]!;
    const again = loaded[index]!;
    await until(`the rest came over ${transport}`, () => again.text(sessionId) === counted(6));
    const runs = (await logOf(service, { conversationId: sessionId })).filter(
      ({ type }) => type === 'run.queued',
    );
    assert.equal(runs.length, 1);
  }

  const answer = await peer.answerTo(prompt);
  assert.equal(answer.result?.stopReason, 'end_turn', JSON.stringify(answer));
  assert.equal(peer.text(bridged), counted(6), 'every word once');
  assert.equal(
    peer.updates(bridged).some((update) => update.sessionUpdate === 'user_message_chunk'),
    false,
  );
  const log = await logOf(service, { conversationId: bridged });
  assert.equal(log.filter((event) => event.type === 'run.queued').length, 1);
  assert.equal((await peer.prompt(unsaid, 'say: a new session')).stopReason, 'end_turn');

  assert.equal(requests().length, 1, 'a question is put once');
  const outcome = { outcome: 'selected', optionId: 'yes' };
  asking.wire.send({ jsonrpc: '2.0', id: requests()[0].id, result: { outcome } });
  assert.equal((await asking.answerTo(question)).result?.stopReason, 'end_turn');
  assert.match(asking.text(asked), /heard yes/);
  for (const { wire } of [peer, asking]) {
    wire.leave();
    assert.equal(await wire.closed, 0);
    assert.deepEqual(wire.junk, []);
  }
});

test('After kill -9 of a service whose sandboxes end with it, as those of one from a terminal do, streams of A2A are subscribed to again and sessions loaded, and all get the answer of the next attempt, once.', async (t) => {
  const world = await a2aWorld({ env: { BERTH_DETACH: 'never' } });
  t.after(() => world.close());
  const { service, agent, origin } = world;
  const words = 'hold go-on';
  const open = (path: string, body: object) =>
    world.fetch(`${origin}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${service.key}`,
        'content-type': 'application/json',
        'a2a-version': '1.0',
      },
      body: JSON.stringify(body),
    });
  const rpc = (method: string, params: object) => open('/a2a', { jsonrpc: '2.0', id: 1, method, params });
  const bindings = [
    {
      begin: () => rpc('SendStreamingMessage', { message: message(words) }),
      again: (id: string) => rpc('SubscribeToTask', { id }),
      isRpc: true,
    },
    {
      begin: () => open('/a2a/http/message:stream', { message: message(words) }),
      again: (id: string) => open(`/a2a/http/tasks/${id}:subscribe`, {}),
      isRpc: false,
    },
  ];
  const cut = bindings.map(async ({ begin, isRpc }) => {
    let id = '';
    let text = '';
    const isThere = Promise.withResolvers<void>();
    const ended = (async () => {
      try {
        for await (const { data } of sse(await begin())) {
          const { task, artifactUpdate } = isRpc ? data.result : data;
          id ||= task?.id ?? '';
          if (artifactUpdate) text += artifactUpdate.artifact.parts[0].text;
          if (text !== '') isThere.resolve();
        }
      } catch {
        // The connection was cut.
      }
    })();
    await isThere.promise;
    return { id, ended };
  });
  const transports = ['websocket', 'http'] as const;
  const connect = (transport: Transport) =>
    acpClient(acpStream(transport, service.port, agent.id, service.key));
  const clients = await Promise.all(transports.map(connect));
  const sessions = await Promise.all(clients.map((client) => client.open()));
  const lost = clients.map((client, index) =>
    client.prompt(sessions[index]!, words).then(
      () => 'answered',
      () => 'lost',
    ),
  );
  const tasks = await Promise.all(cut);
  await until('the prompts are answered in part', () => clients.every((client) => client.text() !== ''));
  await service.kill9();
  await Promise.all(tasks.map(({ ended }) => ended));
  assert.deepEqual(await Promise.all(lost), ['lost', 'lost']);
  await service.restart();

  const loaded = await Promise.all(transports.map(connect));
  t.after(() => loaded.forEach((client) => client.close()));
  for (const [index, client] of loaded.entries())
    await client.agent.request(session.load, { sessionId: sessions[index]!, ...place });
  const subscribed = await Promise.all(bindings.map(({ again }, index) => again(tasks[index]!.id)));
  const go = await service.api('PUT', `/sandbox/${agent.id}/files/go-on`, 'now', {
    'content-type': 'application/octet-stream',
  });
  assert.ok(go.status < 300, go.text);
  for (const [index, { isRpc }] of bindings.entries()) {
    let text = '';
    let state = '';
    for await (const { data } of sse(subscribed[index]!)) {
      const { task, artifactUpdate, statusUpdate } = isRpc ? data.result : data;
      if (task) text = task.artifacts?.[0]?.parts[0].text ?? '';
      if (artifactUpdate) text = (artifactUpdate.append ? text : '') + artifactUpdate.artifact.parts[0].text;
      if (statusUpdate) state = statusUpdate.status.state;
    }
    assert.deepEqual([text, state], [counted(6), 'TASK_STATE_COMPLETED'], `stream ${index}`);
    const { result } = await world.rpc('GetTask', { id: tasks[index]!.id });
    assert.equal(result.artifacts[0].parts[0].text, counted(6));
  }
  for (const [index, client] of loaded.entries()) {
    // What the attempt said that was lost is told too, as a message of its own.
    const last = () => {
      const texts = new Map<unknown, string>();
      for (const { update } of client.updates)
        if (update.sessionUpdate === 'agent_message_chunk' && update.content.type === 'text')
          texts.set(update.messageId, (texts.get(update.messageId) ?? '') + update.content.text);
      return [...texts.values()].at(-1);
    };
    await until(`the rest came over ${transports[index]}`, () => last() === counted(6));
    const logged = () => logOf(service, { conversationId: sessions[index]! });
    await until('the run has ended', async () => (await logged()).at(-1)?.type === 'run.completed');
    const log = await logged();
    const count = (type: string) => log.filter((event) => event.type === type).length;
    assert.deepEqual([count('run.queued'), count('run.retrying'), count('run.completed')], [1, 1, 1]);
  }
});
