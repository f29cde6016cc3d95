import { test } from 'node:test';
import { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { silentLog } from '../support/log.ts';
import { runAttacks } from './attack-suite.ts';
import { checkColumn } from './attack-table.ts';
import { engineMissing, IMAGE, startEngine } from './engines.ts';
import { driverFixture } from './fixture.ts';

test(
  'every attack from podman with runc is blocked or harmless, as the docs say',
  { skip: engineMissing('podman') },
  async () => {
    const engine = await startEngine('podman');
    const options = { log: silentLog, image: IMAGE, runtime: null, socket: engine.socket };
    const fx = driverFixture((at) => new DockerDriver({ ...at, ...options }));
    try {
      checkColumn('Podman, runc', await runAttacks(fx, await fx.driver.isolation()));
    } finally {
      await fx.close();
      await engine.close();
    }
  },
);
