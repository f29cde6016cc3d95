import assert from 'node:assert/strict';
import { test } from 'node:test';
import { methods } from '@agentclientprotocol/sdk';
import { variedFiles } from '../support/acp-agents.ts';
import { acpClient, acpStream, place, type Transport } from '../support/acp-client.ts';
import { Peer } from '../support/acp-peer.ts';
import { bridgeWire, type Target } from '../support/acp-wire.ts';
import { logOf, workshop } from '../support/scenario.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const { session } = methods.agent;
const counted = (count: number) => Array.from({ length: count }, (_, index) => `${index + 1} `).join('');

test('After kill -9 in the middle of a prompt a client loads its session, over WebSocket and HTTP, and gets the rest; the bridge hides it, and each prompt is one run.', async (t) => {
  const service = await startService({ env: { BERTH_DETACH: 'always' } });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
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
    client.prompt(sessions[index]!, 'slow: 80 100').then(
      () => 'answered',
      () => 'lost',
    ),
  );
  const prompt = peer.begin('session/prompt', {
    sessionId: bridged,
    prompt: [{ type: 'text', text: 'slow: 80 100' }],
  });
  await until(
    'the turns have begun',
    () => clients.every((client) => client.text().length > 10) && peer.text(bridged).length > 10,
  );
  await service.kill9();
  assert.deepEqual(await Promise.all(lost), ['lost', 'lost']);
  // What is said while nobody listens is heard later.
  const list = peer.begin('session/list', {});
  await service.restart();

  for (const [index, transport] of transports.entries()) {
    const sessionId = sessions[index]!;
    const again = await connect(transport);
    t.after(() => again.close());
    await again.agent.request(session.load, { sessionId, ...place });
    await until(`the rest came over ${transport}`, () => again.text(sessionId) === counted(80));
    const runs = (await logOf(service, { conversationId: sessionId })).filter(
      ({ type }) => type === 'run.queued',
    );
    assert.equal(runs.length, 1);
  }

  await peer.answerTo(list);
  const answer = await peer.answerTo(prompt);
  assert.equal(answer.result?.stopReason, 'end_turn', JSON.stringify(answer));
  assert.equal(peer.text(bridged), counted(80), 'every word once');
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
