import assert from 'node:assert/strict';
import { test } from 'node:test';
import { egressWorld, openTunnel, reasonOf } from './fixture.ts';

test('A host, a suffix or an address that is denied without a port is denied on every port; with one, on that alone', async (t) => {
  const world = await egressWorld(t, { policy: { mode: 'open' } });
  world.names.set('sub.good.test', ['93.184.216.1']);
  const reasonAt = async (authority: string) => {
    const { status, head, socket } = await openTunnel(world.socketPath, authority);
    socket.destroy();
    return status === 200 ? null : reasonOf(head);
  };
  for (const rule of ['good.test', 'good.test/tcp', 'good.test:*']) {
    await world.setPolicy({ deny: [rule] });
    for (const port of [80, 443, 7, 22, 9443])
      assert.equal(await reasonAt(`good.test:${port}`), 'denied', rule);
    // What is allowed in so many words is denied all the same.
    await world.setPolicy({ allow: ['good.test:7/tcp'] });
    assert.equal(await reasonAt('good.test:7'), 'denied', rule);
    assert.equal(await reasonAt('sub.good.test:7'), null, rule);
  }
  await world.setPolicy({ deny: ['*.good.test'] });
  assert.equal(await reasonAt('sub.good.test:7'), 'denied');
  assert.equal(await reasonAt('good.test:7'), null);
  // Addresses hold for what a name resolves to.
  for (const rule of ['93.184.216.1', '93.184.216.0/24']) {
    await world.setPolicy({ deny: [rule] });
    assert.equal(await reasonAt('good.test:7'), 'denied', rule);
  }
  for (const rule of ['good.test:443', '*.test:443', '93.184.216.1:443']) {
    await world.setPolicy({ deny: [rule] });
    assert.equal(await reasonAt('good.test:443'), 'denied', rule);
    assert.equal(await reasonAt('good.test:7'), null, rule);
  }
});
