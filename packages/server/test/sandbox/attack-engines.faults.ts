import { after, before, describe, test } from 'node:test';
import { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { silentLog } from '../support/log.ts';
import { runAttacks } from './attack-suite.ts';
import { checkColumn, type Column } from './attack-table.ts';
import { engineService } from './engine-service.ts';
import {
  engineMissing,
  IMAGE,
  runscMissing,
  startEngine,
  type EngineName,
  type TestEngine,
} from './engines.ts';
import { driverFixture } from './fixture.ts';

// These two take long; the attacks from Docker with runc are in docker.test.ts.
const runs: { engine: EngineName; runtime: string | null; column: Column; skip: string | false }[] = [
  { engine: 'podman', runtime: null, column: 'Podman, runc', skip: engineMissing('podman') },
  {
    engine: 'docker',
    runtime: 'runsc',
    column: 'Docker, gVisor',
    skip: engineMissing('docker') || runscMissing(),
  },
];

for (const { engine: name, runtime, column, skip } of runs) {
  test(`every attack from ${column} is blocked or harmless, as the docs say`, { skip }, async () => {
    const engine = await startEngine(name);
    const options = { log: silentLog, image: IMAGE, runtime, socket: engine.socket };
    const fx = driverFixture((at) => new DockerDriver({ ...at, ...options }));
    try {
      checkColumn(column, await runAttacks(fx, await fx.driver.isolation()));
    } finally {
      await fx.close();
      await engine.close();
    }
  });
}

const withoutGvisor = engineMissing('docker') || runscMissing();
describe('the service on Docker with gVisor', { skip: withoutGvisor, concurrency: 1 }, () => {
  let engine: TestEngine;
  before(async () => {
    engine = await startEngine('docker');
  });
  after(() => engine.close());
  engineService({
    ...{ label: 'Docker, gVisor', runtime: 'runsc', skip: withoutGvisor },
    engine: () => engine,
    make: () => {
      const options = { log: silentLog, image: IMAGE, runtime: 'runsc', socket: engine.socket };
      return driverFixture((at) => new DockerDriver({ ...at, ...options }));
    },
  });
});
