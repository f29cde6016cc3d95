import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { a2aWorld, type A2aWorld } from '../support/a2a-world.ts';
import { checkLog, logOf } from '../support/scenario.ts';
import { surfaceClients, surfaces } from '../support/surfaces.ts';
import { until } from '../support/until.ts';

let world: A2aWorld;
let clients: Awaited<ReturnType<typeof surfaceClients>>;

before(async () => {
  world = await a2aWorld();
  clients = await surfaceClients(world);
  await world.agent.say('echo warm');
  // Each protocol is loaded when it is asked for first; a watcher that comes after the end of a short run is refused.
  for (const surface of surfaces) await (await clients.begin[surface]('echo warm')).heard();
});
after(async () => {
  clients?.close();
  await world?.close();
});

const counted = (count: number) => Array.from({ length: count }, (_, index) => `${index + 1} `).join('');

for (const [round, surface] of surfaces.entries()) {
  test(`A run begun by ${surface} and watched by every surface has one text and one end.`, async () => {
    const begun = await clients.begin[surface](`hold go-${round}`);
    const watched = await Promise.all(surfaces.map((other) => clients.watch[other](begun)));
    const type = { 'content-type': 'application/octet-stream' };
    const go = await world.service.api('PUT', `/sandbox/${world.agent.id}/files/go-${round}`, 'now', type);
    assert.ok(go.status < 300, go.text);
    const [mine, ...others] = await Promise.all([begun.heard(), ...watched.map((heard) => heard())]);
    assert.deepEqual(mine, { text: counted(6), end: 'completed' }, surface);
    others.forEach((heard, index) =>
      assert.deepEqual(heard, mine, `${surface}, watched by ${surfaces[index]}`),
    );
    const log = await logOf(world.service, { conversationId: begun.conversationId });
    checkLog(log);
    assert.equal(log.filter(({ type }) => type === 'run.queued').length, 1);
  });

  test(`A cancel by ${surface} ends the run for everybody who watches.`, async () => {
    const begun = await clients.begin[surface]('slow 400 40');
    const watched = await Promise.all(surfaces.map((other) => clients.watch[other](begun)));
    await until(
      'the answer has begun',
      async () =>
        (await logOf(world.service, { runId: begun.runId })).filter(({ type }) => type === 'message.delta')
          .length > 2,
    );
    await begun.cancel();
    const [mine, ...others] = await Promise.all([begun.heard(), ...watched.map((heard) => heard())]);
    assert.equal(mine.end, 'cancelled', surface);
    assert.ok(
      counted(400).startsWith(mine.text) && mine.text !== '' && mine.text !== counted(400),
      mine.text,
    );
    others.forEach((heard, index) =>
      assert.deepEqual(heard, mine, `${surface}, watched by ${surfaces[index]}`),
    );
  });
}
