import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { methods } from '@agentclientprotocol/sdk';
import { acpClient, acpStream, place, type AcpClientOptions, type Transport } from '../support/acp-client.ts';
import { workshop, type Pushed, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';

const { session } = methods.agent;

let service: Service;
let shop: Workshop;
let agent: Pushed;

before(async () => {
  service = await startService();
  shop = await workshop(service);
  agent = await shop.agent({ 'AGENTS.md': 'x\n' });
});
after(async () => {
  await shop?.close();
  await service?.end();
});

const connect = (transport: Transport, options?: AcpClientOptions, agentId = agent.id, key = service.key) =>
  acpClient(acpStream(transport, service.port, agentId, key), options);

for (const transport of ['websocket', 'http'] as const) {
  test(`The SDK's client prompts, lists, loads, resumes, closes and deletes a session (${transport}).`, async (t) => {
    const one = await connect(transport);
    t.after(() => one.close());
    const sessionId = await one.open();
    const first = await one.prompt(sessionId, 'say: one two three');
    assert.equal(first.stopReason, 'end_turn');
    assert.equal(one.text(sessionId), 'one two three');
    const second = await one.prompt(sessionId, 'run: echo hello');
    assert.equal(second.stopReason, 'end_turn');
    const kinds = one.updates.map(({ update }) => update.sessionUpdate);
    assert.ok(kinds.includes('tool_call') && kinds.includes('tool_call_update'), kinds.join(' '));

    const { sessions } = await one.agent.request(session.list, { cwd: place.cwd });
    assert.equal(sessions.find((found) => found.sessionId === sessionId)?.title, 'say: one two three');

    const other = await connect(transport);
    t.after(() => other.close());
    assert.deepEqual(await other.agent.request(session.load, { sessionId, ...place }), {});
    const told = other.updates.map(({ update }) => update.sessionUpdate);
    assert.equal(told[0], 'user_message_chunk');
    assert.equal(told.filter((kind) => kind === 'user_message_chunk').length, 2);
    assert.equal(other.text(), one.text());

    const third = await connect(transport);
    t.after(() => third.close());
    assert.deepEqual(await third.agent.request(session.resume, { sessionId, ...place }), {});
    assert.deepEqual(third.updates, []);
    await third.prompt(sessionId, 'say: four');
    assert.equal(third.text(), 'four');
    await until(
      'the other connections saw it too',
      () => one.text().endsWith('four') && other.text().endsWith('four'),
    );

    assert.deepEqual(await third.agent.request(session.close, { sessionId }), {});
    assert.deepEqual(await one.agent.request(session.delete, { sessionId }), {});
    assert.deepEqual(await one.agent.request(session.delete, { sessionId }), {});
    await assert.rejects(other.agent.request(session.load, { sessionId, ...place }), { code: -32002 });
  });
}
