import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { gauge } from '../support/gauge.ts';
import { workshop, type Pushed, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { openSse } from '../support/sse.ts';
import { until } from '../support/until.ts';

const isRoot = process.getuid?.() === 0;

let service: Service;
let shop: Workshop;
before(async () => {
  // Only root has a warm pool, and leaves sandboxes to the next process.
  const env = isRoot ? { BERTH_DETACH: 'always', BERTH_WARM_SANDBOXES: '1' } : {};
  service = await startService({ env });
  shop = await workshop(service);
});
after(async () => {
  await shop?.close();
  await service?.end();
});

const running = (script: string): Promise<Pushed> =>
  shop.agent({ 'agent.json': JSON.stringify({ command: ['sh', '-c', script] }) });

const logOf = async ({ id }: Pushed) => {
  const headers = { authorization: `Bearer ${service.key}` };
  const answer = await fetch(`${service.url}/sandbox/${id}/logs`, { headers });
  assert.equal(answer.status, 200);
  const lines = (await answer.text()).split('\n').slice(0, -1);
  const [sandboxId] = answer.headers.get('berth-log-position')?.split(':') ?? [];
  return { sandboxId, lines: lines.map((line) => line.slice(line.indexOf(' ') + 1)) };
};

const follow = ({ id }: Pushed) => openSse(`${service.url}/sandbox/${id}/logs`, { key: service.key });

test('what a harness that fails at once has said is in the log, with the reason, whoever it was started for', async () => {
  const agent = await running('echo i-am-failing-line >&2; exit 3');
  const said = ['i-am-failing-line', 'berth: The start has failed. The harness ended with exit code 3.'];
  if (isRoot) await until('one is ready', async () => (await gauge(service, 'berth_sandboxes_ready')) === 1);
  const started = await service.api('POST', `/sandbox/${agent.id}/start`);
  assert.deepEqual([started.status, started.body.error], [503, 'The harness ended with exit code 3.']);
  const first = await logOf(agent);
  assert.deepEqual(first.lines, said);
  const { runId } = await agent.ask('hi');
  // Each attempt of the turn has a log of its own, empty at first.
  await until('a turn has tried it', async () => {
    const { sandboxId, lines } = await logOf(agent);
    return sandboxId !== first.sandboxId && lines.join() === said.join();
  });
  await service.api('POST', `/v1/runs/${runId}/cancel`);
});

test('what a harness says while its start is under way can be followed to its end, also over a restart of the service', async () => {
  const agent = await running('while :; do echo i-am-slow >&2; sleep 0.2; done');
  const { runId } = await agent.ask('hi');
  const heard = async () => {
    let stream = await follow(agent);
    await until('it is heard', async () => {
      if (stream.text.includes('i-am-slow')) return true;
      if (stream.ended) stream = await follow(agent);
      return false;
    });
    return stream;
  };
  (await heard()).close();
  if (isRoot) {
    await service.kill9();
    await service.restart();
  }
  const stream = await heard();
  await service.api('POST', `/v1/runs/${runId}/cancel`);
  await service.api('POST', `/sandbox/${agent.id}/kill`);
  await until('the stream has ended', () => stream.ended);
  assert.match(stream.text, /i-am-slow[^]*berth: The start has failed\. .*ended while it was being/);
  assert.match((await logOf(agent)).lines.at(-1)!, /^berth: The start has failed\. /);
});
