import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { killRounds } from '../support/kill-rounds.ts';
import { openServiceDatabase } from '../support/scenario-world.ts';
import { checkLog, logOf, workshop } from '../support/scenario.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { checkSeen, view } from '../support/viewer.ts';

test('A service that is killed in the middle of the second turn has the first turn, the second message and, started again, its whole answer.', async (t) => {
  const service = await startService({ env: { BERTH_LEASE_SECONDS: '2' } });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  const first = await agent.say('say: the first answer');
  const { conversationId } = first;
  const viewer = view(service, conversationId);
  t.after(() => viewer.stop());
  // Long enough that it has not ended when the service is killed, also on a busy machine.
  const second = await agent.ask('slow: 100 50', conversationId);
  await until('a few words of the second answer have been seen', () =>
    viewer.seen.some(({ type, data }) => type === 'message.delta' && data.runId === second.runId),
  );
  await service.kill9();
  await service.restart();

  const messages = await service.api('GET', `/v1/conversations/${conversationId}/messages`);
  const contents = messages.body.messages.map((message: { content: string }) => message.content);
  assert.deepEqual(contents.slice(-3), ['slow: 100 50', 'the first answer', 'say: the first answer']);
  await until(
    'the second turn has ended',
    async () => (await service.api('GET', `/v1/runs/${second.runId}`)).body.run.status === 'completed',
  );
  const log = await logOf(service, { conversationId });
  checkLog(log);
  const answer = log.findLast((event) => event.type === 'message.created')!;
  assert.equal(answer.data.content, Array.from({ length: 100 }, (_, index) => `${index + 1} `).join(''));
  assert.ok(log.some((event) => event.type === 'run.retrying' && event.data.runId === second.runId));
  await until('the viewer has come back and seen all', () => viewer.seen.length >= log.length);
  checkSeen(viewer, log);
});

test('However often the service is killed, every accepted message has one settled run, no event is lost or twice, and nothing is left behind.', async (t) => {
  const seed = Math.floor(Math.random() * 1e9);
  t.diagnostic(`seed ${seed}`);
  const report = await killRounds({
    turns: 12,
    kills: 3,
    pauseMs: [200, 2_500],
    agents: 2,
    conversations: 4,
    seed,
  });
  t.diagnostic(JSON.stringify(report));
  assert.equal(report.accepted, 12);
  assert.ok(report.amidWork >= 1, 'the first kill came while a turn was under way');
});

test('A command that was under way when the service was killed is not run again by the same request, whose key says that it may have begun.', async (t) => {
  const service = await startService();
  t.after(() => service.end());
  const agentId = (await service.api('GET', '/v1/agents')).body.agents[0].id as string;
  const path = `/sandbox/${agentId}`;
  const key = newId();
  const send = (headers: Record<string, string> = { 'idempotency-key': key }) =>
    service.api(
      'POST',
      `${path}/exec`,
      { command: ['sh', '-c', 'echo z >> lines; exec sleep 600'] },
      headers,
    );
  const lines = async () => (await service.api('GET', `${path}/files/lines`)).text;
  const first = send().catch(() => null);
  await until('the command has begun', async () => (await lines()) === 'z\n');
  await service.kill9();
  assert.equal(await first, null);
  await service.restart();

  const early = await send();
  assert.deepEqual([early.status, early.body.code], [409, 'idempotency_in_progress']);
  // Nobody waits here until its lease, of half a minute, is over.
  const db = openServiceDatabase(service);
  await db.sql`update idempotency set created_at = now() - interval '31 seconds' where idempotency_key = ${key}`;
  await db.close();
  for (let round = 0; round < 2; round += 1) {
    const again = await send();
    assert.deepEqual([again.status, again.body.code], [409, 'idempotency_interrupted']);
    assert.match(again.body.error, /may have begun.*another key/);
  }
  assert.equal(await lines(), 'z\n');

  // What may be done twice still is: the same key would be in the way for ever.
  const stop = () => service.api('POST', `${path}/stop`, undefined, { 'idempotency-key': 'stop' });
  const stopped = await stop();
  assert.equal(stopped.status, 200, stopped.text);
  const left = openServiceDatabase(service);
  const ended = await left.sql`
    update idempotency set status = null, headers = null, sealed_body = null, wrapped_key = null, kek_id = null,
      created_at = now() - interval '31 seconds'
    where idempotency_key = 'stop'`;
  await left.close();
  assert.equal(ended.count, 1);
  const anew = await stop();
  assert.deepEqual([anew.status, anew.headers.get('idempotent-replayed')], [200, null]);
});
