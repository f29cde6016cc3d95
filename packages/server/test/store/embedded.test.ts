import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openDatabase } from '../../src/store/database.ts';
import { findEngines } from '../../src/store/embedded/engine.ts';
import type { Engine } from '../../src/store/embedded/engine.ts';
import { startEmbedded } from '../../src/store/embedded/server.ts';
import type { EmbeddedServer } from '../../src/store/embedded/server.ts';
import { processesIn, readPid } from '../../src/store/embedded/stale.ts';
import { engines, folderForDatabases } from '../support/database.ts';
import { silentLog } from '../support/log.ts';
import { placeCluster } from '../support/prepared-cluster.ts';
import { startLines } from '../support/process.ts';
import { until, inTime } from '../support/until.ts';
import type { LineProcess } from '../support/process.ts';

const CHILD = fileURLToPath(new URL('./fixtures/embedded-child.ts', import.meta.url));

/** Empty, or with a database of this engine, for the many tests that are not about how one is made. */
async function dataFolder(made?: Engine): Promise<string> {
  const folder = mkdtempSync(join(folderForDatabases(), 'berth-data-'));
  chmodSync(folder, 0o711);
  if (made) await placeCluster(join(folder, 'postgres'), 'service', made);
  return folder;
}

function startChild(dataDir: string, kind: string, rows: number, ending = 'wait'): LineProcess {
  return startLines(process.execPath, [CHILD, dataDir, kind, String(rows), ending]);
}

function start(dataDir: string, engine: Engine): Promise<EmbeddedServer> {
  return startEmbedded({
    home: `${dataDir}/postgres`,
    socketDir: `${dataDir}/run/pg`,
    log: silentLog,
    engines: [engine],
  });
}

async function ask<T>(server: EmbeddedServer, text: string): Promise<T[]> {
  const db = openDatabase({ connection: server.connection, pool: 1 });
  try {
    return await db.sql.unsafe<T[] & object[]>(text);
  } finally {
    await db.close();
  }
}

for (const { name, engine, options } of engines()) {
  test(
    `kill -9 of the service ends PostgreSQL, and the next start has every acknowledged row (${name})`,
    options,
    async () => {
      const dataDir = await dataFolder(engine);
      const child = startChild(dataDir, engine!.kind, 1_000_000);
      try {
        await until('rows are acknowledged', () => child.lines.length > 50 || child.child.exitCode !== null);
        const clusterDir = String(child.lines[0]?.clusterDir);
        assert.ok(processesIn(clusterDir).length > 0, child.complaints());
        await child.kill9();
        await until('PostgreSQL is gone', () => processesIn(clusterDir).length === 0);

        const server = await start(dataDir, engine!);
        const [row] = await ask<{ n: number }>(server, 'select max(n) as n, count(*) from acknowledged');
        const last = Number(child.lines.at(-1)?.n);
        assert.ok(row && row.n >= last, `${row?.n} rows, ${last} acknowledged`);
        await server.stop();
        assert.deepEqual(processesIn(clusterDir), []);
      } finally {
        await child.kill9();
        rmSync(dataDir, { recursive: true });
      }
    },
  );
}

const engine = findEngines()[0];

test('PostgreSQL starts again after it was killed as a whole, with no service to see it', async () => {
  const dataDir = await dataFolder(engine);
  const child = startChild(dataDir, engine!.kind, 30);
  try {
    await until('the rows are in', () => child.lines.length > 30);
    const clusterDir = String(child.lines[0]?.clusterDir);
    const shell = child.child.pid!;
    await child.kill9();
    for (const pid of processesIn(clusterDir)) tryKill(pid);
    assert.ok(shell > 0);

    const server = await start(dataDir, engine!);
    const [row] = await ask<{ n: string }>(server, 'select count(*)::int as n from acknowledged');
    assert.equal(row?.n, 30);
    await server.stop();
  } finally {
    await child.kill9();
    rmSync(dataDir, { recursive: true });
  }
});

test('a service that ends in order has stopped PostgreSQL before it is gone', async () => {
  const dataDir = await dataFolder(engine);
  const child = startChild(dataDir, engine!.kind, 3, 'stop');
  try {
    await inTime('it is gone', child.ended);
    assert.deepEqual(child.lines.at(-1), { stopped: true });
    assert.equal(child.child.exitCode, 0, child.complaints());
    assert.deepEqual(processesIn(String(child.lines[0]?.clusterDir)), []);
  } finally {
    await child.kill9();
    rmSync(dataDir, { recursive: true });
  }
});

test('a pid file of a crash whose pid belongs to another process by now does not hinder the start', async () => {
  const dataDir = await dataFolder(engine);
  try {
    const first = await start(dataDir, engine!);
    await first.stop();
    const pidFile = join(first.clusterDir, 'postmaster.pid');
    writeFileSync(pidFile, `${process.ppid}\n${first.clusterDir}\n1\n5432\n${dataDir}/run/pg\n\n`);
    writeFileSync(`${dataDir}/run/pg/.s.PGSQL.5432.lock`, `${process.ppid}\n`);
    const second = await start(dataDir, engine!);
    assert.notEqual(readPid(pidFile), process.ppid);
    await second.stop();
  } finally {
    rmSync(dataDir, { recursive: true });
  }
});

test('PostgreSQL that is killed under a running service is started again', async () => {
  const dataDir = await dataFolder(engine);
  const server = await start(dataDir, engine!);
  const db = openDatabase({ connection: server.connection, pool: 2 });
  try {
    const killed = server.pid()!;
    process.kill(killed, 'SIGKILL');
    await until('it answers again', () =>
      db.sql`select 1`.then(
        () => server.pid() !== killed,
        () => false,
      ),
    );
  } finally {
    await db.close();
    await server.stop();
    rmSync(dataDir, { recursive: true });
  }
});

for (const moment of ['at once', 'when its successor has begun'] as const) {
  test(`a stop ${moment} after PostgreSQL was killed ends whatever was started meanwhile`, async () => {
    const dataDir = await dataFolder(engine);
    const server = await start(dataDir, engine!);
    try {
      for (let round = 0; round < 2; round++) {
        const killed = server.pid()!;
        process.kill(killed, 'SIGKILL');
        if (moment === 'at once') break;
        await until('its successor has begun', () => ![null, killed].includes(server.pid()));
        if (round === 1) break;
        await until('it answers', () =>
          ask(server, 'select 1').then(
            () => true,
            () => false,
          ),
        );
      }
      await inTime('it has stopped', server.stop());
      assert.deepEqual(processesIn(server.clusterDir), []);
    } finally {
      rmSync(dataDir, { recursive: true });
    }
  });
}

test('only the holder of the password gets in, and nothing listens on the network', async () => {
  const dataDir = await dataFolder();
  const server = await start(dataDir, engine!);
  try {
    const stranger = openDatabase({ connection: { ...server.connection, password: 'guess' }, pool: 1 });
    await assert.rejects(Promise.resolve(stranger.sql`select 1`), { code: '28P01' });
    await stranger.close();
    assert.equal(statSync(`${dataDir}/postgres/password`).mode & 0o777, 0o600);
    assert.equal(statSync(`${dataDir}/run/pg`).mode & 0o777, 0o700);
    const [row] = await ask<{ addresses: string; sums: string; sync: string; statistics: string }>(
      server,
      `select current_setting('listen_addresses') as addresses, current_setting('data_checksums') as sums,
         current_setting('fsync') as sync, current_setting('default_statistics_target') as statistics`,
    );
    assert.deepEqual({ ...row }, { addresses: '', sums: 'on', sync: 'on', statistics: '25' });
  } finally {
    await server.stop();
    rmSync(dataDir, { recursive: true });
  }
});

test('a data directory of another PostgreSQL version is refused with both versions', async () => {
  const dataDir = await dataFolder(engine);
  try {
    const server = await start(dataDir, engine!);
    await server.stop();
    writeFileSync(join(server.clusterDir, 'PG_VERSION'), '14\n');
    await assert.rejects(
      start(dataDir, engine!),
      /was made by PostgreSQL 14, which is not here .* is of version \d+/,
    );
  } finally {
    rmSync(dataDir, { recursive: true });
  }
});

test('a start that fails shows the words of PostgreSQL and leaves no process', async () => {
  const dataDir = await dataFolder(engine);
  try {
    const server = await start(dataDir, engine!);
    await server.stop();
    rmSync(join(server.clusterDir, 'global'), { recursive: true });
    await assert.rejects(start(dataDir, engine!), /PostgreSQL did not start: .*(global|control)/s);
    assert.deepEqual(processesIn(server.clusterDir), []);
    assert.ok(existsSync(`${dataDir}/postgres/postgres.log`));
  } finally {
    rmSync(dataDir, { recursive: true });
  }
});

function tryKill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself meanwhile.
  }
}
