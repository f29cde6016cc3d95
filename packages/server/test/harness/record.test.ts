import assert from 'node:assert/strict';
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { runTurn, startHarness } from '../support/harness-fixture.ts';

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

const touches = (file: string) => (_request: unknown, index: number) =>
  index === 0 ? { toolCalls: [{ name: 'bash', input: { command: `touch ${file}` } }] } : { text: ['done'] };

test('a tool call that changes something waits until the service has it on record', async (t) => {
  const { connection, places } = await startHarness(t, { script: touches('changed') });
  const file = join(places.workspace, 'changed');
  const seen: boolean[] = [];
  let tools = 0;
  const turn = await runTurn(connection, 'go', {
    onUpdate: (update) => void (tools += update.kind === 'tool' ? 1 : 0),
    onRecord: async () => {
      assert.equal(tools, 1, 'the call was told before the question whether it is on record');
      // Long enough for the command, were it not waiting.
      for (let look = 0; look < 20; look += 1) {
        seen.push(await exists(file));
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    },
  });
  assert.deepEqual(turn.result, { outcome: 'completed' });
  assert.equal(seen.length, 20);
  assert.ok(!seen.includes(true), 'the command ran before its call was on record');
  assert.ok(await exists(file));
});

test('a tool call is not made when the service refuses to record it, as it does for a run that another node has', async (t) => {
  const { connection, places } = await startHarness(t, { script: touches('never') });
  await runTurn(connection, 'go', { onRecord: () => Promise.reject(new Error('lost')) });
  assert.equal(await exists(join(places.workspace, 'never')), false);
});
