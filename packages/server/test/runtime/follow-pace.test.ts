import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConversationEvent } from '../../src/domain/events.ts';
import { runWorld, send } from '../support/run-world.ts';
import { until } from '../support/until.ts';

test('the past is read page by page, as fast as the client takes it, and then what comes', async (t) => {
  const world = await runWorld();
  t.after(() => world.close());
  const { agentId, owner } = world;
  const replica = await world.replica({
    async script(turn) {
      const output = 'x'.repeat(60_000);
      const call = { kind: 'tool', title: 't', toolKind: 'other', output } as const;
      for (let i = 0; i < 20; i += 1) {
        const toolCallId = `call-${i}`;
        turn.onUpdate({ ...call, toolCallId, phase: 'started', status: 'running' });
        turn.onUpdate({ ...call, toolCallId, phase: 'finished', status: 'completed' });
      }
      return { outcome: 'completed' };
    },
  });
  const { runId, conversationId } = await replica.runs.send(owner, send('go', { agentId }));
  await replica.runs.outcome(owner, runId, 60_000);
  const seen: ConversationEvent[] = [];
  const takers: (() => void)[] = [];
  let biggestWrite = 0;
  const stop = await replica.events.follow(owner, { conversationId }, 0, {
    write(events) {
      seen.push(...events);
      biggestWrite = Math.max(biggestWrite, JSON.stringify(events).length);
      return true;
    },
    drained: () => new Promise((resolve) => takers.push(resolve)),
    end() {},
  });
  t.after(stop);
  await until('the first page is there', () => takers.length === 1);
  const first = seen.length;
  assert.ok(first > 0 && first < 10, `${first} events before the client has taken any`);
  // What comes meanwhile waits its turn.
  const next = await replica.runs.send(owner, send('more', { agentId, conversationId }));
  await replica.runs.outcome(owner, next.runId, 60_000);
  assert.equal(seen.length, first);
  await until('all is there', () => {
    takers.splice(0).forEach((take) => take());
    return seen.some((event) => event.type === 'run.completed' && event.runId === next.runId);
  });
  assert.deepEqual(
    seen.map((event) => event.seq),
    seen.map((_, index) => index + 1),
  );
  assert.ok(biggestWrite < 300_000, `${biggestWrite}`);
});
