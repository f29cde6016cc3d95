import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { describe, test } from 'node:test';
import { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { silentLog } from '../support/log.ts';
import { engineMissing, IMAGE, runscMissing } from './engines.ts';
import { engineSuite, shortContract, withEngine } from './engine-suite.ts';
import { driverFixture } from './fixture.ts';

// Side by side, since each mostly waits for its engine.
describe('container engines', { concurrency: 2 }, () => {
  // What takes long is in docker-gvisor.faults.ts and podman.faults.ts.
  engineSuite(
    'docker',
    [
      { runtime: 'runc', column: 'Docker, runc', skip: false },
      { runtime: 'runsc', column: null, skip: runscMissing(), isShort: true },
    ],
    'Docker, runc',
  );

  withEngine('podman', engineMissing('podman'), (_engine, make) =>
    shortContract('podman', 'runc', false, make),
  );
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
  // Without an engine nobody can be asked what runs, as `fx.close` does; nothing does.
  await fx.driver.close();
  rmSync(fx.folder, { recursive: true, force: true });
});
