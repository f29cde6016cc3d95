import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { silentLog } from '../support/log.ts';
import { engineMissing, IMAGE, runscMissing } from './engines.ts';
import { engineSuite, withEngine } from './engine-suite.ts';
import { collect, driverFixture } from './fixture.ts';

// Side by side, since each mostly waits for its engine.
describe('container engines', { concurrency: 2 }, () => {
  // What takes long is in docker-gvisor.faults.ts and podman.faults.ts.
  engineSuite(
    'docker',
    [
      { runtime: 'runc', column: 'Docker, runc', skip: false },
      { runtime: 'runsc', column: null, skip: runscMissing() },
    ],
    'Docker, runc',
  );

  withEngine('podman', engineMissing('podman'), (_engine, make) => {
    test('a container of Podman is proven isolated, runs a program, tells its end, is listed, and is gone when removed', async () => {
      const fx = make('runc');
      try {
        assert.deepEqual((await fx.driver.capabilities()).problems, []);
        assert.equal(await fx.driver.isolation(), 'kernel');
        const ends = await fx.start('cat; echo to-stderr >&2; echo kept > file; exit 7');
        ends.stdin.end('to-stdin\n');
        assert.deepEqual(await collect(ends), {
          exit: { reason: 'exit', code: 7, signal: null },
          stdout: 'to-stdin\n',
          stderr: 'to-stderr\n',
        });
        const stays = await fx.start('cat file; exec cat');
        assert.deepEqual(await fx.driver.list(), [stays.id]);
        const said = collect(stays);
        await fx.driver.remove(stays.id);
        assert.equal((await said).exit.reason, 'killed');
        assert.equal((await said).stdout, 'kept\n');
        assert.deepEqual(await fx.driver.list(), []);
      } finally {
        await fx.close();
      }
    });
  });
});

test('without an engine the driver is unusable, says how to start one, and proves no isolation', async () => {
  const fx = driverFixture(
    (at) =>
      new DockerDriver({
        ...at,
        log: silentLog,
        image: IMAGE,
        runtime: null,
        socket: '/no/such/engine.sock',
      }),
  );
  const { usable, problems } = await fx.driver.capabilities();
  assert.equal(usable, false);
  assert.match(
    problems.join('\n'),
    /no socket \/no\/such\/engine\.sock.*podman system service.*BERTH_DOCKER_SOCKET/,
  );
  await assert.rejects(fx.driver.isolation(), /did not start/);
});
