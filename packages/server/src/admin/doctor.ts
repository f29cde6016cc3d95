import { execFile } from 'node:child_process';
import { accessSync, constants, readFileSync, statfsSync } from 'node:fs';
import { createConnection } from 'node:net';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import type { Config } from '../config.ts';
import type { SandboxDriver } from '../domain/ports/sandbox.ts';
import { openSandboxDriver } from '../open-sandbox-driver.ts';
import { findOllama } from '../gateway/ollama.ts';
import { readProviders } from '../gateway/providers.ts';
import { createLogger } from '../logger.ts';
import { isolationProblem } from '../sandbox/minimum.ts';
import { describe } from '../sandbox/probe.ts';
import { findEngines } from '../store/embedded/engine.ts';
import { checkUsable } from '../store/migrate.ts';
import { openReached } from '../store/reach.ts';
import { CommandError } from './run.ts';
import { nearestThere, TrialFolders } from './trial-folders.ts';

/** A server that takes a connection and then says nothing must not hold up who wants to know why nothing works. */
const ANSWER_SECONDS = 5;

interface Finding {
  part: string;
  ok: boolean;
  lines: string[];
}

/** Says what this machine offers and lacks, and the exact remedy; exit code 1 when the service could not work. */
export async function doctor(config: Config, env: NodeJS.ProcessEnv, asJson: boolean): Promise<number> {
  const findings = [nodeVersion(), await git(), await database(config), disk(config)];
  findings.push(await models(config, env), await sandbox(config), await port(config));
  const ok = findings.every((finding) => finding.ok);
  if (asJson) process.stdout.write(`${JSON.stringify({ ok, findings }, null, 2)}\n`);
  else {
    for (const { part, ok: fine, lines } of findings) {
      process.stdout.write(`${fine ? 'ok     ' : 'PROBLEM'}  ${part}: ${lines[0] ?? ''}\n`);
      for (const line of lines.slice(1)) process.stdout.write(`           ${line}\n`);
    }
  }
  return ok ? 0 : 1;
}

function nodeVersion(): Finding {
  const ok = Number(process.versions.node.split('.')[0]) >= 24;
  return {
    part: 'node',
    ok,
    lines: [ok ? process.version : `${process.version}; version 24 or newer is needed`],
  };
}

async function git(): Promise<Finding> {
  try {
    const { stdout } = await promisify(execFile)('git', ['--version']);
    return { part: 'git', ok: true, lines: [stdout.trim()] };
  } catch {
    return { part: 'git', ok: false, lines: ['is missing; run: apt-get install -y git'] };
  }
}

async function database({ databaseUrl }: Config): Promise<Finding> {
  const part = 'database';
  if (databaseUrl !== null) {
    try {
      const db = await openReached({ connection: databaseUrl, pool: 1, answerSeconds: ANSWER_SECONDS });
      try {
        await checkUsable(db.sql);
      } finally {
        await db.close();
      }
      // The URL holds a password, so only that there is one is said.
      return { part, ok: true, lines: ['BERTH_DATABASE_URL is set, and its server can be used'] };
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const lines = ['the one of BERTH_DATABASE_URL cannot be used', `problem: ${why}`];
      return { part, ok: false, lines };
    }
  }
  const [engine] = findEngines();
  if (engine) return { part, ok: true, lines: [`embedded PostgreSQL (${engine.kind})`] };
  return { part, ok: false, lines: ['no PostgreSQL for this platform; set BERTH_DATABASE_URL'] };
}

function disk({ dataDir }: Config): Finding {
  const part = 'disk';
  // The data directory is made by the first start: until then the nearest folder above it counts.
  const there = nearestThere(dataDir);
  const isMissing = there !== dataDir;
  try {
    const { bavail, bsize } = statfsSync(there);
    try {
      accessSync(there, constants.W_OK | constants.X_OK);
    } catch {
      const lines = [`${dataDir} cannot be written by this user`, 'run as its owner, or set BERTH_DATA_DIR'];
      return { part, ok: false, lines };
    }
    const freeMb = Math.floor((bavail * bsize) / 1024 / 1024);
    const ok = freeMb > 1024;
    const lines = [
      `${freeMb} MiB free ${isMissing ? 'for' : 'at'} ${dataDir}${ok ? '' : '; that is too little'}`,
    ];
    if (isMissing)
      lines.push(
        'this data directory is not there: the first start makes it; BERTH_DATA_DIR names another one',
      );
    return { part, ok, lines };
  } catch {
    return { part, ok: false, lines: [`${dataDir} cannot be looked at`] };
  }
}

async function models(config: Config, env: NodeJS.ProcessEnv): Promise<Finding> {
  const file = config.modelProvidersFile === null ? null : readFileSync(config.modelProvidersFile, 'utf8');
  const providers = readProviders(env, file);
  const ollama = findOllama(providers.get('ollama'), true);
  await ollama.check();
  // Ollama needs no key, so it counts when it answers.
  const ready = [...providers.values()].filter(
    (p) => p.key !== null || (!p.needsKey && (p.name !== 'ollama' || ollama.isFound())),
  );
  const names = ready.map((provider) => provider.name);
  const lines = [
    names.length > 0 ? `configured: ${names.join(', ')}` : 'no provider has a key; only demo/guide answers',
  ];
  if (names.length === 0) lines.push('set ANTHROPIC_API_KEY or OPENAI_API_KEY, or see docs/models.md');
  return { part: 'models', ok: true, lines };
}

/** Tries them in folders of its own, which are gone when it ends: beside a service, and where none was ever started. */
async function sandbox(config: Config): Promise<Finding> {
  const part = 'sandbox';
  const folders = new TrialFolders();
  let driver: SandboxDriver | null = null;
  const clear = async (): Promise<void> => {
    await driver?.close();
    folders.remove();
  };
  // Cut off in its middle, a trial would leave what it has made. It is short, and each of its waits has an end. A terminal
  // and `berth` tell of the same key, so that it may come twice.
  let isInterrupted = false;
  const interrupt = (): void => void (isInterrupted = true);
  const signals = ['SIGINT', 'SIGTERM'] as const;
  for (const signal of signals) process.on(signal, interrupt);
  try {
    const paths = {
      runtime: join(folders.for(dirname(config.paths.runtime)), 'runtime'),
      disks: join(folders.for(dirname(config.paths.disks)), 'disks'),
    };
    driver = openSandboxDriver(
      { ...config, paths: { ...config.paths, ...paths } },
      createLogger('silent', () => {}),
    );
    const capabilities = await driver.capabilities(true);
    const lines = describe(capabilities).map((line) => line.replace(/^sandbox: /, ''));
    const refusal = await isolationProblem(driver, {
      minimum: config.minIsolation,
      allowsProcesses: config.allowsProcessSandbox,
      // Only the first start makes one, and the embedded database cannot be asked without starting it.
      organisations: 1,
    });
    if (refusal !== null) lines.splice(1, 0, `problem: the service does not start with it: ${refusal}`);
    await clear().catch((error: unknown) =>
      lines.push(`note: not all of the trial could be removed: ${String(error)}`),
    );
    if (isInterrupted) throw new CommandError('The doctor was interrupted.');
    return { part, ok: capabilities.usable && refusal === null, lines };
  } catch (error) {
    if (error instanceof CommandError) throw error;
    await clear().catch(() => undefined);
    const why = error instanceof Error ? error.message : String(error);
    return { part, ok: false, lines: ['cannot be tried', `problem: ${why}`] };
  } finally {
    for (const signal of signals) process.off(signal, interrupt);
  }
}

function port(config: Config): Promise<Finding> {
  return new Promise((resolve) => {
    const socket = createConnection({ port: config.port, host: config.host });
    const say = (line: string) => {
      socket.destroy();
      resolve({ part: 'port', ok: true, lines: [line] });
    };
    socket.once('connect', () =>
      say(`something answers on ${config.host}:${config.port} already (this service?)`),
    );
    socket.once('error', () => say(`${config.host}:${config.port} is free`));
  });
}
