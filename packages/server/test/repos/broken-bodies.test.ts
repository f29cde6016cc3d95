import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { gitWorld, type GitWorld } from '../support/git-world.ts';

let world: GitWorld;
before(async () => {
  world = await gitWorld();
});
after(() => world.close());

const services = ['git-upload-pack', 'git-receive-pack'] as const;

// A rejection that nobody waits for ends the service; here it fails the test in which it happens.
for (const service of services) {
  test(`a body that is no gzip, or is cut, ends its own request of ${service} and nothing else`, async () => {
    const agent = await world.newAgent();
    const authorization = `Bearer ${await world.key('edit')}`;
    const cut = gzipSync(Buffer.alloc(10_000, '0032want ')).subarray(0, 20);
    for (const body of [Buffer.from('not gzip'), cut, Buffer.alloc(0)]) {
      const answer = await fetch(`http://127.0.0.1:${world.port}/git/${agent.id}.git/${service}`, {
        method: 'POST',
        headers: {
          'Content-Type': `application/x-${service}-request`,
          'Content-Encoding': 'gzip',
          Authorization: authorization,
        },
        body,
      });
      assert.ok(answer.status < 500, String(answer.status));
      assert.doesNotMatch(await answer.text(), /service failed|Internal error/);
    }
    assert.equal((await world.git(['ls-remote', world.url(agent.id)])).code, 0);
  });
}
