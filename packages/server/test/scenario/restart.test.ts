import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { checkLog, logOf, workshop, type LoggedEvent } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';
import { checkSeen, view } from '../support/viewer.ts';

const counted = (count: number) => Array.from({ length: count }, (_, index) => `${index + 1} `).join('');
const deltas = (log: LoggedEvent[], runId: string) =>
  log.flatMap((event) =>
    event.type === 'message.delta' && event.data.runId === runId ? [event.data.text] : [],
  );
const count = (log: LoggedEvent[], type: string, runId: string) =>
  log.filter((event) => event.type === type && event.data.runId === runId).length;

async function open(t: TestContext, env: Record<string, string> = {}) {
  const service = await startService({ env: { BERTH_DETACH: 'always', ...env } });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());
  return { service, agent: await shop.agent({ 'AGENTS.md': 'x\n' }) };
}

async function ended(service: Service, runId: string): Promise<string> {
  let status = '';
  await until(
    `run ${runId} has ended`,
    async () => {
      status = (await service.api('GET', `/v1/runs/${runId}`)).body.run.status;
      return status === 'completed' || status === 'failed' || status === 'cancelled';
    },
    30_000,
  );
  return status;
}

test('A turn whose service is killed in the middle of its answer goes on with the next start: the same attempt, every word once.', async (t) => {
  const { service, agent } = await open(t);
  const { conversationId } = await agent.say('say: the first answer');
  const viewer = view(service, conversationId);
  t.after(() => viewer.stop());
  const { runId } = await agent.ask('slow: 40 50', conversationId);
  for (const words of [5, 12]) {
    await until(
      `${words} pieces of the answer have been seen`,
      () =>
        viewer.seen.filter((event) => event.data.runId === runId && event.type === 'message.delta').length >=
        words,
      20_000,
    );
    await service.kill9();
    await service.restart();
  }
  assert.equal(await ended(service, runId), 'completed');
  const log = await logOf(service, { conversationId });
  checkLog(log);
  assert.equal(deltas(log, runId).join(''), counted(40));
  assert.equal(log.findLast((event) => event.type === 'message.created')!.data.content, counted(40));
  assert.equal(count(log, 'run.retrying', runId), 0);
  assert.equal(count(log, 'run.started', runId), 1);
  await until('the viewer has come back and seen all', () => viewer.seen.length >= log.length);
  checkSeen(viewer, log);
  assert.equal((await agent.say('say: and on', conversationId)).message.content, 'and on');
});

test('A command that runs while the service is killed runs once, and its result is in the answer.', async (t) => {
  const { service, agent } = await open(t);
  const { runId, conversationId } = await agent.ask(
    'run: echo begun >> times; sleep 3; echo over; wc -l < times',
  );
  await until(
    'the command has begun',
    async () => count(await logOf(service, { runId }), 'tool.started', runId) === 1,
    20_000,
  );
  await service.kill9();
  await service.restart();
  assert.equal(await ended(service, runId), 'completed');
  const log = await logOf(service, { conversationId });
  checkLog(log);
  assert.equal(count(log, 'run.retrying', runId), 0);
  assert.equal(count(log, 'tool.started', runId), 1);
  const finished = log.filter((event) => event.type === 'tool.finished');
  assert.equal(finished.length, 1);
  assert.equal(finished[0]!.data.status, 'completed');
  assert.match(`${finished[0]!.data.output}`, /over\n1\n/);
});

test('On SIGTERM a turn that does not end in time is left to the next start; on SIGINT nothing is left of it.', async (t) => {
  const { service, agent } = await open(t, { BERTH_DRAIN_SECONDS: '0' });
  const { runId } = await agent.ask('slow: 60 50');
  const begun = async (id: string) => count(await logOf(service, { runId: id }), 'message.delta', id) > 2;
  await until('the answer has begun', () => begun(runId), 20_000);
  await service.stop('SIGTERM');
  await service.restart();
  assert.equal(await ended(service, runId), 'completed');
  const log = await logOf(service, { runId });
  assert.equal(deltas(log, runId).join(''), counted(60));
  assert.equal(count(log, 'run.retrying', runId), 0);

  const second = await agent.ask('slow: 60 50');
  await until('the next answer has begun', () => begun(second.runId), 20_000);
  await service.stop('SIGINT');
  await service.restart();
  assert.equal(await ended(service, second.runId), 'completed');
  assert.equal(count(await logOf(service, { runId: second.runId }), 'run.retrying', second.runId), 1);
});

test('The time limit of a turn goes on while the service is away.', async (t) => {
  const { service, agent } = await open(t, { BERTH_RUN_TIMEOUT_SECONDS: '6' });
  const { runId } = await agent.ask('slow: 500 50');
  await until(
    'the answer has begun',
    async () => count(await logOf(service, { runId }), 'message.delta', runId) > 2,
    20_000,
  );
  await service.kill9();
  await service.restart();
  const startedMs = Date.now();
  assert.equal(await ended(service, runId), 'failed');
  assert.ok(Date.now() - startedMs < 6_000, 'less than a whole limit was left');
  const { run } = (await service.api('GET', `/v1/runs/${runId}`)).body;
  assert.equal(run.error.code, 'timeout');
  assert.equal(run.attempt, 1);
});
