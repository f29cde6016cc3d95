import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { findEngines } from '../../src/store/embedded/engine.ts';
import { startEmbedded, type EmbeddedServer } from '../../src/store/embedded/server.ts';
import { silentLog } from '../support/log.ts';
import { placeCluster } from '../support/prepared-cluster.ts';
import { inTime } from '../support/until.ts';
import { startService, type Service } from '../support/service.ts';

async function startPostgres(): Promise<EmbeddedServer & { end(): Promise<void> }> {
  const folder = mkdtempSync('/tmp/berth-away-');
  chmodSync(folder, 0o711);
  const paths = { home: join(folder, 'postgres'), socketDir: join(folder, 'run') };
  await placeCluster(paths.home, 'service');
  const server = await startEmbedded({ ...paths, log: silentLog, engines: findEngines().slice(0, 1) });
  const end = async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  return { ...server, end };
}

/** The database behind a port of its own, which can fall silent or go away. */
class Passage {
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  #isSilent = false;

  private constructor(target: string) {
    this.#server = createServer((client) => {
      this.#sockets.add(client);
      client.on('error', () => undefined);
      if (this.#isSilent) return;
      const database = connect(target);
      this.#sockets.add(database);
      database.on('error', () => undefined);
      client.pipe(database).pipe(client);
    });
  }

  static async open(target: string): Promise<Passage> {
    const passage = new Passage(target);
    await new Promise<void>((resolve) => passage.#server.listen(0, '127.0.0.1', resolve));
    return passage;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** What is asked arrives nowhere, and nothing tells of that. */
  fallSilent(): void {
    this.#isSilent = true;
    for (const socket of this.#sockets) socket.unpipe().pause();
  }

  goAway(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

// Side by side, since they wait for time limits.
describe('without its database', { concurrency: true }, () => {
  for (const how of ['silent', 'gone'] as const) {
    test(`SIGTERM ends the service in bounded time and leaves nothing when its database is ${how}`, async () => {
      const postgres = await startPostgres();
      const { host, user, password, database } = postgres.connection;
      const passage = await Passage.open(join(String(host), '.s.PGSQL.5432'));
      const url = `postgres://${String(user)}:${String(password)}@127.0.0.1:${passage.port}/${String(database)}`;
      const env = { BERTH_DATABASE_URL: url, BERTH_DRAIN_SECONDS: '1' };
      let service: Service | undefined;
      try {
        service = await startService({ env });
        if (how === 'silent') passage.fallSilent();
        else passage.goAway();
        const code = await inTime('the service has ended', service.stop());
        assert.equal(code, 1, service.logs());
        assert.match(service.logs(), /did not end in order/);
        assert.equal((await fetch(service.url).catch(() => null)) === null, true, 'nothing listens any more');
      } finally {
        passage.goAway();
        await service?.end();
        await postgres.end();
      }
    });
  }
});
