import { test } from 'node:test';
import { runAttacks } from './attack-suite.ts';
import { checkColumn } from './attack-table.ts';
import { engineService } from './engine-service.ts';
import { engineContract, withEngine } from './engine-suite.ts';
import { engineMissing, runscMissing } from './engines.ts';

const skip = engineMissing('docker') || runscMissing();

// These take long; one test of gVisor is in docker.test.ts.
withEngine('docker', skip, (engine, make) => {
  engineContract('docker', 'runsc', false, make);

  test('every attack from Docker, gVisor is blocked or harmless, as the docs say', async () => {
    const fx = make('runsc');
    try {
      checkColumn('Docker, gVisor', await runAttacks(fx, await fx.driver.isolation()));
    } finally {
      await fx.close();
    }
  });

  engineService({ label: 'Docker, gVisor', runtime: 'runsc', skip, engine, make: () => make('runsc') });
});
