import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { checkLog, hostProcesses, logOf, workshop, type Pushed, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { openSse } from '../support/sse.ts';
import { until } from '../support/until.ts';

let service: Service;
let shop: Workshop;
before(async () => {
  service = await startService();
  shop = await workshop(service);
});
after(async () => {
  await shop?.close();
  await service?.end();
});

/** Processes on the host with this number in their command line, whatever sandbox they are in: other files use others. */
const sleeping = (seconds: number) =>
  hostProcesses((line) => line.startsWith(`sleep ${seconds} `) && !line.includes('run:')).length;

async function runOf(runId: string) {
  return (await service.api('GET', `/v1/runs/${runId}`)).body.run;
}

async function ended(runId: string) {
  await until(`the run ${runId} has ended`, async () =>
    ['completed', 'failed', 'cancelled'].includes((await runOf(runId)).status),
  );
  return runOf(runId);
}

async function works(agent: Pushed, conversationId: string): Promise<void> {
  const next = await agent.say('run: echo still here', conversationId);
  assert.match(next.message?.content ?? JSON.stringify(next), /still here\n\[exit code: 0\]/);
  checkLog(await logOf(service, { conversationId }));
}

test('A cancel reaches the process in the sandbox, and the next turn works.', async () => {
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  const asked = await agent.ask('run: sleep 7391');
  await until('the command sleeps', () => sleeping(7391) === 1);
  const cancelled = await service.api('POST', `/v1/runs/${asked.runId}/cancel`);
  assert.ok([200, 202].includes(cancelled.status), cancelled.text);
  assert.equal((await ended(asked.runId)).status, 'cancelled');
  await until('the process is gone', () => sleeping(7391) === 0);
  await works(agent, asked.conversationId);
});

test('A client that goes away in the middle of a stream, or while it waits for the answer, stops nothing.', async () => {
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  const body = { agentId: agent.id, conversationId: null, content: 'slow: 30 50' };
  const stream = await openSse(`${service.url}/api/v1/chat/send`, { key: service.key, method: 'POST', body });
  await until('the first words have come', () => stream.text.includes('message.delta'));
  const { data } = JSON.parse(stream.frames[0]!.data!);
  stream.close();

  const waiting = new AbortController();
  const answer = fetch(`${service.url}/api/v1/chat/send`, {
    method: 'POST',
    signal: waiting.signal,
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ ...body, content: 'run: sleep 1; touch waited.txt' }),
  });
  answer.catch(() => undefined);
  const runs = async () => (await service.api('GET', `/v1/agents/${agent.id}/runs`)).body.runs;
  await until('the second run is accepted', async () => (await runs()).length === 2);
  waiting.abort();

  assert.equal((await ended(data.runId)).status, 'completed');
  const [second] = await runs();
  assert.equal((await ended(second.id)).status, 'completed');
  const left = await agent.say('run: ls', second.conversationId);
  assert.match(left.message.content, /waited\.txt/);
});

test('A harness that is killed fails its turn as harness_exit, and the next turn has a new one and the whole conversation.', async () => {
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  const first = await agent.say('say: remember me');
  // Every process of the sandbox that this one may signal, the harness among them.
  const killed = await agent.say('run: kill -9 -1', first.conversationId);
  assert.equal(killed.status, 'failed', JSON.stringify(killed));
  assert.equal(killed.error.code, 'harness_exit');
  assert.equal(killed.message, null);
  await works(agent, first.conversationId);
  const known = await agent.say('hm?', first.conversationId);
  assert.ok(Number(/messages in this conversation: (\d+)/.exec(known.message.content)?.[1]) >= 6);
});

test('A command that eats all memory is ended alone, and one that leaves none for the harness ends the turn as sandbox_oom.', async () => {
  const agent = await shop.agent({ 'agent.json': '{"limits": {"memoryMb": 128}}' });
  const first = await agent.say('run: echo warm');
  const hungry = `node --max-old-space-size=4000 -e "const a=[];for(;;)a.push(Buffer.alloc(8e6,1))"`;
  const ate = await agent.say(`run: ${hungry}`, first.conversationId);
  assert.match(ate.message?.content ?? JSON.stringify(ate), /ended by SIG|exit code: [1-9]/);
  await works(agent, first.conversationId);

  // Many small eaters: the largest process, which the kernel takes, is the harness.
  const eater = '(head -c 16000000 /dev/zero; sleep 5) | tail -c 16000000 > /dev/null &';
  const full = await agent.say(`run: for i in 1 2 3 4 5 6 7 8; do ${eater} done; wait`, first.conversationId);
  if ((await service.host('doctor')).includes('memory hard'))
    assert.equal(full.error?.code, 'sandbox_oom', JSON.stringify(full));
  await works(agent, first.conversationId);
});

test('Processes that a turn left at their limit do not keep the next turn from working, and its files are still there.', async () => {
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  // Until nothing can be started any more; they stay when their parent has ended.
  const bomb =
    "perl -e 'for (1..1000) { $p = fork; last unless defined $p; exec q(sleep), 7394 unless $p }' >/dev/null 2>&1; echo kept > kept.txt";
  const lit = await agent.say(`run: ${bomb}`);
  assert.equal(lit.status, 'completed', JSON.stringify(lit));
  const next = await agent.say('run: /bin/ls kept.txt | /bin/cat', lit.conversationId);
  assert.match(next.message?.content ?? JSON.stringify(next), /kept\.txt\n\[exit code: 0\]/);
  await until('they are gone', () => sleeping(7394) === 0);
  await works(agent, lit.conversationId);
});

test('A full disk ends the turn as sandbox_disk_full or fails the command, and the agent can make room again.', async () => {
  const agent = await shop.agent({ 'agent.json': '{"limits": {"diskMb": 32}}' });
  const first = await agent.say('run: echo warm');
  const write =
    'for i in $(seq 200); do head -c 1000000 /dev/zero > fill$i || exit 9; sleep 0.02; done; sleep 20';
  const filled = await agent.say(`run: ${write}`, first.conversationId);
  if (filled.status === 'failed')
    assert.equal(filled.error.code, 'sandbox_disk_full', JSON.stringify(filled));
  else assert.match(filled.message.content, /exit code: 9/);
  const freed = await agent.say('run: rm -f fill*; echo room', first.conversationId);
  assert.match(freed.message?.content ?? JSON.stringify(freed), /room/);
  await works(agent, first.conversationId);
});

test('Deleting an agent ends what runs in its sandbox and takes its files, repository and conversations away.', async () => {
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  const asked = await agent.ask('run: echo mine > own.txt; sleep 7395');
  await until('the command sleeps', () => sleeping(7395) === 1);
  const deleted = await service.api('DELETE', `/v1/agents/${agent.id}`);
  assert.equal(deleted.status, 204, deleted.text);
  await until('the process is gone', () => sleeping(7395) === 0);
  for (const path of [
    `/v1/agents/${agent.id}`,
    `/v1/runs/${asked.runId}`,
    `/v1/conversations/${asked.conversationId}`,
  ])
    assert.equal((await service.api('GET', path)).status, 404, path);
  const left = () =>
    ['volumes', 'repos', 'run'].flatMap((part) =>
      readdirSync(join(service.dataDir, part)).filter((name) => name.includes(agent.id)),
    );
  await until('no folder of it is left', () => left().length === 0);
});

test('A turn that takes longer than it may ends as timeout with its processes, and the next turn works.', async () => {
  // It is the limit of the turns before and after as well, which start a sandbox and a harness.
  await service.restart({ BERTH_RUN_TIMEOUT_SECONDS: '10' });
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  const first = await agent.say('run: echo warm');
  assert.equal(first.status, 'completed', JSON.stringify(first));
  const asked = await agent.say('run: sleep 7392', first.conversationId);
  assert.equal(asked.status, 'failed', JSON.stringify(asked));
  assert.equal(asked.error.code, 'timeout');
  await until('the process is gone', () => sleeping(7392) === 0);
  await works(agent, first.conversationId);
});
