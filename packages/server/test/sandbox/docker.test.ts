import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { silentLog } from '../support/log.ts';
import { runAttacks } from './attack-suite.ts';
import { checkColumn, type Column } from './attack-table.ts';
import { sandboxContract } from './contract-suite.ts';
import { engineService } from './engine-service.ts';
import {
  engineMissing,
  IMAGE,
  runscMissing,
  startEngine,
  type EngineName,
  type TestEngine,
} from './engines.ts';
import { driverFixture, type Fixture } from './fixture.ts';

const options = { log: silentLog, image: IMAGE, runtime: null };

function engineSuite(
  name: EngineName,
  runtimes: { runtime: string; column: Column | null; skip: string | false }[],
): void {
  const skip = engineMissing(name);
  describe(`containers of ${name}`, { skip, concurrency: 1 }, () => {
    let engine: TestEngine;
    before(async () => {
      engine = await startEngine(name);
    });
    after(() => engine.close());
    const make = (runtime: string | null, place?: { areaDir: string; name: string }): Fixture =>
      driverFixture((at) => new DockerDriver({ ...at, ...options, runtime, socket: engine.socket }), place);

    for (const { runtime, column, skip: why } of runtimes) {
      sandboxContract({
        label: `${name} with ${runtime}`,
        isolation: runtime === 'runsc' ? 'user-kernel' : 'kernel',
        make: (place) => make(runtime, place),
        skip: why,
      });
      if (column === null) continue;
      test(
        `every attack from ${name} with ${runtime} is blocked or harmless, as the docs say`,
        { skip: why },
        async () => {
          const fx = make(runtime);
          try {
            checkColumn(column, await runAttacks(fx, await fx.driver.isolation()));
          } finally {
            await fx.close();
          }
        },
      );
    }

    // One is enough here: the other, with gVisor, is in attack-engines.faults.ts.
    if (name === 'podman')
      engineService({
        ...{ label: 'Podman, runc', runtime: null, skip },
        engine: () => engine,
        make: () => make(null),
      });

    test('an unknown runtime or image is a problem with its remedy, and nothing is started in its place', async () => {
      for (const wrong of [{ runtime: 'no-such-runtime' }, { image: 'no-such-image:1' }]) {
        const fx = driverFixture(
          (at) => new DockerDriver({ ...at, ...options, ...wrong, socket: engine.socket }),
        );
        try {
          const { usable, problems, isolation } = await fx.driver.capabilities();
          assert.equal(usable, false);
          assert.equal(isolation, 'none');
          assert.match(problems.join('\n'), /no (runtime|image) "no-such-.*BERTH_DOCKER_/);
          await assert.rejects(fx.driver.isolation());
          await assert.rejects(fx.start('true'), /did not start/);
          assert.deepEqual(await fx.driver.list(), []);
        } finally {
          await fx.close();
        }
      }
    });

    test('containers of another installation on the same engine are not listed and not removed', async () => {
      const [mine, theirs] = [make(null), make(null)];
      try {
        const sandbox = await theirs.start('exec cat');
        assert.deepEqual(await mine.driver.list(), []);
        await mine.driver.remove(sandbox.id);
        assert.deepEqual(await theirs.driver.list(), [sandbox.id]);
      } finally {
        await Promise.all([mine.close(), theirs.close()]);
      }
    });
  });
}

// Side by side, since each mostly waits for its engine. The attacks from Podman and gVisor take long:
// attack-engines.faults.ts.
describe('container engines', { concurrency: 2 }, () => {
  engineSuite('docker', [
    { runtime: 'runc', column: 'Docker, runc', skip: false },
    { runtime: 'runsc', column: null, skip: runscMissing() },
  ]);
  engineSuite('podman', [{ runtime: 'runc', column: null, skip: false }]);
});

test('without an engine the driver is unusable, says how to start one, and proves no isolation', async () => {
  const fx = driverFixture((at) => new DockerDriver({ ...at, ...options, socket: '/no/such/engine.sock' }));
  const { usable, problems } = await fx.driver.capabilities();
  assert.equal(usable, false);
  assert.match(
    problems.join('\n'),
    /no socket \/no\/such\/engine\.sock.*podman system service.*BERTH_DOCKER_SOCKET/,
  );
  await assert.rejects(fx.driver.isolation(), /did not start/);
});
