import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TurnRequest } from '../../src/domain/ports/harness.ts';
import { SandboxControlError } from '../../src/domain/ports/sandbox-control.ts';
import type { Question } from '../../src/domain/questions.ts';
import type { FakeSandbox } from '../support/fake-sandbox.ts';
import { echo, runWorld, send, type Replica } from '../support/run-world.ts';
import { never } from '../support/scripts.ts';

/** As of a launcher that ends because its harness was killed. */
const killed = { reason: 'exit', code: 137, signal: null } as const;

test('a message whose harness had died before it began is answered in a new sandbox', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs, driver } = await world.replica({
    script(turn, sandbox) {
      if (turn.content !== 'now' || driver.started.length > 1) return echo(turn, sandbox);
      sandbox.end(killed);
      return never;
    },
  });
  const before = await runs.send(owner, send('before', { agentId }));
  assert.equal((await runs.outcome(owner, before.runId, 60_000)).run.status, 'completed');
  const { runId, conversationId } = await runs.send(owner, send('now', { agentId }));
  const { run, message } = await runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.attempt, message?.content], ['completed', 2, 'now']);
  assert.equal(driver.started.length, 2);
  const log = await world.log(conversationId);
  const reasons = log.flatMap((event) => (event.type === 'run.retrying' ? [event.data.reason] : []));
  assert.deepEqual(reasons, ['The harness ended before it had begun with the message.']);
});

test('a harness that dies at each message before it begins fails the run after the usual attempts', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const { runs, driver } = await world.replica({
    async script(_turn, sandbox) {
      sandbox.end(killed);
      return never;
    },
  });
  const { runId } = await runs.send(owner, send('go', { agentId }));
  const { run } = await runs.outcome(owner, runId, 60_000);
  assert.deepEqual([run.status, run.error?.code, run.attempt], ['failed', 'harness_exit', 3]);
  assert.equal(driver.started.length, 3);
});

const question: Question = {
  requestId: 'q',
  kind: 'permission',
  title: 'May it?',
  toolCallId: 'call',
  options: [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }],
};

type Sign = (turn: TurnRequest, sandbox: FakeSandbox, replica: Replica) => unknown;

function callModel(sessionId: string | null, { spec }: FakeSandbox, replica: Replica, agentId: string): void {
  const caller = { orgId: '', agentId, sandboxId: spec.id, model: '', tokenHash: '', secretKeys: {} };
  replica.runtime.hooks.onCall(caller, sessionId);
}

const signs: Record<string, (agentId: string) => Sign> = {
  'a text': () => (turn) => turn.onUpdate({ kind: 'text', text: 'I ' }),
  'an update that says nothing': () => (turn) => turn.onTold(1),
  'a question': () => (turn) => turn.onQuestion(question, () => undefined),
  'a wish to be recorded': () => (turn) => turn.onRecord(),
  'a model call': (agentId) => (turn, sandbox, replica) =>
    callModel(`session of ${turn.conversationId}`, sandbox, replica, agentId),
  'a model call without a session': (agentId) => (_turn, sandbox, replica) =>
    callModel(null, sandbox, replica, agentId),
};

for (const [name, signOf] of Object.entries(signs)) {
  test(`a harness that dies after ${name} has begun, so that its run fails and is not done twice`, async (t) => {
    const world = await runWorld();
    t.after(() => world.close());
    const { agentId, owner } = world;
    const sign = signOf(agentId);
    const replica = await world.replica({
      async script(turn, sandbox) {
        await sign(turn, sandbox, replica);
        sandbox.end(killed);
        return never;
      },
    });
    const { runId } = await replica.runs.send(owner, send('go', { agentId }));
    const { run } = await replica.runs.outcome(owner, runId, 60_000);
    assert.deepEqual([run.status, run.error?.code, run.attempt], ['failed', 'harness_exit', 1]);
  });
}

test('a model call that may be of any turn in the sandbox is one of each', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  let inTurn = 0;
  const replica = await world.replica({
    script(_turn, sandbox) {
      inTurn += 1;
      if (inTurn === 2) {
        callModel(null, sandbox, replica, agentId);
        sandbox.end(killed);
      }
      return never;
    },
  });
  const sent = await Promise.all(['1', '2'].map((n) => replica.runs.send(owner, send(n, { agentId }))));
  for (const { runId } of sent) {
    const { run } = await replica.runs.outcome(owner, runId, 60_000);
    assert.deepEqual([run.status, run.error?.code, run.attempt], ['failed', 'harness_exit', 1]);
  }
});

test('a command for a sandbox that had ended already runs in a new one; one that may have begun does not', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { runtime, driver } = await world.replica();
  const { host } = runtime;
  const control = await host.control(world.agentId);
  const first = driver.started[0]!;
  first.channelError = new SandboxControlError('gone', 'The sandbox has ended.', true);
  const command = control.exec({ command: ['true'] });
  // Its channel ends before it is known that it has ended.
  setImmediate(() => first.end(killed));
  (await command).kill();
  assert.equal(driver.started.length, 2);
  assert.equal((await host.state(world.agentId)).sandboxId, driver.started[1]!.id);

  const again = await host.control(world.agentId);
  driver.started[1]!.channelError = new SandboxControlError('gone', 'The sandbox has ended.');
  await assert.rejects(again.exec({ command: ['true'] }), { code: 'gone' });
  assert.equal(driver.started.length, 2);
});
