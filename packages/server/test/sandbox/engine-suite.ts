import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { silentLog } from '../support/log.ts';
import { runAttacks } from './attack-suite.ts';
import { checkColumn, type Column } from './attack-table.ts';
import { sandboxContract } from './contract-suite.ts';
import { engineService, type EngineUnderTest } from './engine-service.ts';
import { engineMissing, IMAGE, startEngine, type EngineName, type TestEngine } from './engines.ts';
import { collect, driverFixture, lineOf, type Fixture } from './fixture.ts';

export interface EngineRun {
  runtime: string;
  /** Where what every attack has found is compared with the page; null leaves the attacks out. */
  column: Column | null;
  skip: string | false;
  /** One test in place of the contract, which then runs elsewhere. */
  isShort?: true;
}

const options = { log: silentLog, image: IMAGE, runtime: null };

export type MakeFixture = (runtime: string | null, place?: { areaDir: string; name: string }) => Fixture;

/** Runs `body` as tests over one engine of their own. */
export function withEngine(
  name: EngineName,
  skip: string | false,
  body: (engine: () => TestEngine, make: MakeFixture) => void,
): void {
  describe(`containers of ${name}`, { skip, concurrency: 1 }, () => {
    let engine: TestEngine;
    before(async () => {
      engine = await startEngine(name);
    });
    after(() => engine.close());
    body(
      () => engine,
      (runtime, place) =>
        driverFixture((at) => new DockerDriver({ ...at, ...options, runtime, socket: engine.socket }), place),
    );
  });
}

const isolationOf = (runtime: string) => (runtime === 'runsc' ? 'user-kernel' : 'kernel');

export function engineContract(
  name: EngineName,
  runtime: string,
  skip: string | false,
  make: MakeFixture,
): void {
  sandboxContract({
    label: `${name} with ${runtime}`,
    isolation: isolationOf(runtime),
    make: (place) => make(runtime, place),
    skip,
  });
}

/** What must be seen in each run of the tests, also where the whole contract takes too long for that. */
export function shortContract(
  name: EngineName,
  runtime: string,
  skip: string | false,
  make: MakeFixture,
): void {
  const title = `a container of ${name} with ${runtime} is proven isolated, runs a program, tells its end, is listed, and is gone when removed`;
  test(title, { skip }, async () => {
    const fx = make(runtime);
    try {
      assert.deepEqual((await fx.driver.capabilities()).problems, []);
      assert.equal(await fx.driver.isolation(), isolationOf(runtime));
      const ends = await fx.start('cat; echo to-stderr >&2; echo kept > file; exit 7');
      ends.stdin.end('to-stdin\n');
      assert.deepEqual(await collect(ends), {
        exit: { reason: 'exit', code: 7, signal: null },
        stdout: 'to-stdin\n',
        stderr: 'to-stderr\n',
      });
      const stays = await fx.start('cat file; exec cat');
      assert.deepEqual(await fx.driver.list(), [stays.id]);
      await lineOf(stays.stdout, (line) => line === 'kept');
      await fx.driver.remove(stays.id);
      assert.equal((await stays.exited).reason, 'killed');
      assert.deepEqual(await fx.driver.list(), []);
    } finally {
      await fx.close();
    }
  });
}

/** The contract and the attacks on an engine, and the whole service with its containers. */
export function engineSuite(
  name: EngineName,
  runtimes: EngineRun[],
  service: EngineUnderTest['label'] | null,
): void {
  const skip = engineMissing(name);
  withEngine(name, skip, (engine, make) => {
    for (const { runtime, column, skip: why, isShort } of runtimes) {
      if (isShort) shortContract(name, runtime, why, make);
      else engineContract(name, runtime, why, make);
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

    if (service !== null)
      engineService({ label: service, runtime: null, skip, engine, make: () => make(null) });

    test('an unknown runtime or image is a problem with its remedy, and nothing is started in its place', async () => {
      for (const wrong of [{ runtime: 'no-such-runtime' }, { image: 'no-such-image:1' }]) {
        const fx = driverFixture(
          (at) => new DockerDriver({ ...at, ...options, ...wrong, socket: engine().socket }),
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
