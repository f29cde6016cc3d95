import { lookup } from 'node:dns/promises';
import { createServer, type AddressInfo } from 'node:net';
import { compose, type Service } from '../compose.ts';
import { ConfigError } from '../config-values.ts';
import { withPort, type Config } from '../config.ts';
import { roomProblems } from '../host-checks.ts';
import { createLogger, type Logger } from '../logger.ts';
import { readNodeId } from '../node-id.ts';
import { openStore } from '../open-store.ts';
import { watchProcess, type ProcessFaults } from '../process-faults.ts';
import { lockDataDir } from '../store/data-dir-lock.ts';
import { announce } from './announce.ts';
import { watchParent } from './watch-parent.ts';

/** Runs the service in the foreground until a signal; resolves with the exit code. */
export async function serve(given: Config, env: NodeJS.ProcessEnv): Promise<number> {
  const log = createLogger(given.logLevel, (text) => process.stderr.write(text));
  const lock = lockDataDir(given.dataDir);
  const faults = watchProcess(log);
  try {
    // Asked for before the slow part, so that nobody waits for a start that must fail.
    await checkAddress(given);
    return await serveLocked(given, env, log, faults);
  } catch (error) {
    if (roomProblems(given.dataDir).length === 0) throw error;
    // Whatever it was, it is likely to come of that, and nobody should have to guess it from the log of the database.
    const why = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`BERTH_DATA_DIR: the disk of ${given.dataDir} is full; make room there. (${why})`);
  } finally {
    faults.release();
    lock.release();
    log.flush();
  }
}

async function serveLocked(
  given: Config,
  env: NodeJS.ProcessEnv,
  log: Logger,
  faults: ProcessFaults,
): Promise<number> {
  const store = await openStore(given, log);
  const broken = faults.broken.then(() => 'fault' as const);
  const opened: { service?: Service } = {};
  const begin = async (): Promise<void> => {
    const config = given.port === 0 ? withPort(given, await freePort(given.host), env) : given;
    const service = await compose(config, env, readNodeId(config.dataDir), store.db, log, faults.gauges);
    opened.service = service;
    await service.start();
    announce(config, service, await service.listener.listen(config.port, config.host));
  };
  try {
    const isBroken = (await Promise.race([begin(), broken])) === 'fault';
    const why = isBroken ? 'fault' : await Promise.race([stopRequested(env, log), broken]);
    const graceSeconds = why === 'fault' ? 0 : given.drainSeconds;
    log.info('Stopping.', { why, graceSeconds });
    const failed = (await opened.service?.stop(graceSeconds * 1000, why !== 'SIGINT')) ?? [];
    return failed.length === 0 && why !== 'fault' ? 0 : 1;
  } catch (error) {
    await opened.service?.stop(0);
    throw error;
  } finally {
    await store.close();
  }
}

async function checkAddress({ host, port }: Config): Promise<void> {
  try {
    await lookup(host);
    await takePort(host, port);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE')
      throw new ConfigError(`BERTH_PORT must be a free port; another program has ${port}.`);
    if (code === 'EACCES') throw new ConfigError(`BERTH_PORT: ${port} may not be taken: ${message}.`);
    throw new ConfigError(`BERTH_HOST must be an address of this machine; "${host}" is none.`);
  }
}

/** The addresses in answers need the port before anything listens. */
const freePort = (host: string): Promise<number> => takePort(host, 0);

/** Listens for a moment and resolves with the port; rejects as the later listening would. */
async function takePort(host: string, port: number): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve, reject) => {
    probe.once('error', reject);
    probe.listen(port, host, resolve);
  });
  const taken = (probe.address() as AddressInfo).port;
  await new Promise((resolve) => probe.close(resolve));
  return taken;
}

/** A second signal ends the process at once: the next start takes up what was cut off. */
function stopRequested(env: NodeJS.ProcessEnv, log: Logger): Promise<string> {
  return new Promise((resolve) => {
    let isAsked = false;
    const ask = (why: string): void => {
      if (isAsked) process.exit(1);
      isAsked = true;
      resolve(why);
    };
    process.on('SIGTERM', () => ask('SIGTERM'));
    process.on('SIGINT', () => ask('SIGINT'));
    watchParent(env, () => {
      log.warn('The parent process is gone; the service ends at once.');
      log.flush();
      process.exit(1);
    });
  });
}
