import type { ChildProcess } from 'node:child_process';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { folderForDatabases } from './database.ts';
import { placeCluster, placeHarness } from './prepared-cluster.ts';
import { servicePort } from './service-port.ts';

/** Here is the data of services that is not in memory. */
export const diskFolder = '/tmp';
const repositoryDir = fileURLToPath(new URL('../../../../', import.meta.url));

export interface ServiceOptions {
  /** Further variables; they win over what the helper sets. */
  env?: Record<string, string>;
  /** How long the start may take. */
  readyMs?: number;
  /** Addresses of host names, told to this service alone: it sees another /etc/hosts. Needs root. */
  hosts?: Record<string, string>;
  /** Makes its database and its harness by itself, as on a machine of a user. Else they are there, without a row. */
  bare?: boolean;
  /** Its data lies on a disk of its own of this size, so that it can be filled. Needs root. */
  diskMiB?: number;
  /** Its data lies on the machine's disk although memory has room: what is measured is to be durable. */
  isOnDisk?: boolean;
}

export interface Reply {
  status: number;
  headers: Headers;
  /** As it came. */
  text: string;
  /** The parsed text when it is JSON, else undefined. */
  // oxlint-disable-next-line no-explicit-any -- tests read into answers of all routes
  body: any;
}

export type Api = (
  method: string,
  path: string,
  body?: unknown,
  headers?: Record<string, string>,
) => Promise<Reply>;

export interface Service {
  /** Without a slash at the end. */
  url: string;
  port: number;
  /** The bootstrap key: edit, org-bound. */
  key: string;
  dataDir: string;
  /** The variables that it is started with. */
  readonly env: Readonly<Record<string, string>>;
  /** Of the running process; another one after a restart. */
  readonly pid: number;
  /** A request with the bootstrap key; `headers.authorization` replaces it, `''` leaves it out. */
  api: Api;
  /** The same with another key. */
  as(key: string): Api;
  /** Everything that it wrote to standard output and standard error so far, over restarts. */
  logs(): string;
  kill9(): Promise<void>;
  /** SIGTERM, and waits; resolves with the exit code. */
  stop(signal?: 'SIGTERM' | 'SIGINT'): Promise<number | null>;
  /** Starts again on the same data and port; stops first when it runs. */
  restart(env?: Record<string, string>): Promise<void>;
  /** Runs a command of the host on the same data; resolves with what it wrote to standard output. */
  host(...args: string[]): Promise<string>;
  /** Ends the process and removes the data; may be called more than once. */
  end(): Promise<void>;
}

interface Running {
  child: ChildProcess;
  exited: Promise<number | null>;
}

/** Services that are not ended yet: whatever becomes of the tests, none outlives their process. */
const open = new Set<Running>();
process.once('exit', () => {
  for (const { child } of open) child.kill('SIGKILL');
});

/**
 * Starts the whole service as its own process on a free port of loopback, with an embedded PostgreSQL in a temporary
 * data directory, and waits until it is ready. The caller ends it, best by `t.after(() => service.end())`.
 */
export async function startService(options: ServiceOptions = {}): Promise<Service> {
  const parentDir = mkdtempSync(join(folderForData(options), 'berth-t-'));
  // Sandboxes and PostgreSQL run as other users when the tests run as root, and must be able to pass through.
  chmodSync(parentDir, 0o711);
  const dataDir = join(parentDir, 'data');
  if (options.diskMiB !== undefined) {
    mkdirSync(dataDir);
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${options.diskMiB}m,mode=0711`, 'none', dataDir]);
  }
  const hostsFile = options.hosts ? join(parentDir, 'hosts') : null;
  if (hostsFile !== null) {
    const lines = Object.entries(options.hosts ?? {}).map(([name, address]) => `${address} ${name}\n`);
    writeFileSync(hostsFile, `127.0.0.1 localhost\n${lines.join('')}`);
  }
  const port = await servicePort();
  const url = `http://127.0.0.1:${port}`;
  let env = environment(dataDir, port, options.env ?? {});
  const output: string[] = [];
  let running: Running | null = null;
  let isUnmounted = false;

  async function start(): Promise<void> {
    running = launch([], env, output, hostsFile);
    try {
      await ready(url, running, options.readyMs ?? 90_000);
    } catch (error) {
      await halt('SIGKILL');
      throw new Error(`${(error as Error).message}\n${output.join('').slice(-4_000)}`, { cause: error });
    }
  }

  async function halt(signal: NodeJS.Signals): Promise<number | null> {
    if (!running) return null;
    const { child, exited } = running;
    child.kill(signal);
    const timer = setTimeout(() => child.kill('SIGKILL'), 60_000);
    const code = await exited;
    clearTimeout(timer);
    running = null;
    return code;
  }

  async function end(): Promise<void> {
    // Nothing may be left of a test, also of one that failed.
    await halt('SIGINT');
    // Lazily, since processes of a test that failed may still stand there; the last of them ends it.
    if (options.diskMiB !== undefined && !isUnmounted) execFileSync('umount', ['--lazy', dataDir]);
    isUnmounted = true;
    rmSync(parentDir, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }

  let key: string;
  try {
    if (!options.bare) {
      mkdirSync(dataDir, { recursive: true, mode: 0o711 });
      await placeHarness(join(dataDir, 'runtime'));
      if (options.env?.['BERTH_DATABASE_URL'] === undefined)
        await placeCluster(join(dataDir, 'postgres'), 'service');
    }
    await start();
    key = readFileSync(join(dataDir, 'bootstrap-key'), 'utf8').trim();
  } catch (error) {
    await end();
    throw error;
  }
  const as = (other: string): Api => {
    return (method, path, body, headers) => send(url, other, method, path, body, headers);
  };
  return {
    url,
    port,
    key,
    dataDir,
    get env() {
      return env;
    },
    get pid() {
      if (running?.child.pid === undefined) throw new Error('The service does not run.');
      return running.child.pid;
    },
    api: as(key),
    as,
    logs: () => output.join(''),
    async kill9() {
      await halt('SIGKILL');
    },
    stop: (signal = 'SIGTERM') => halt(signal),
    async restart(changed = {}) {
      await halt('SIGTERM');
      env = { ...env, ...changed };
      await start();
    },
    async host(...args) {
      const told: string[] = [];
      const command = launch(args, env, told);
      const code = await command.exited;
      if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}: ${told.join('')}`);
      return command.stdout.join('');
    },
    end,
  };
}

/**
 * In memory where there is enough: a service writes its database through to the disk again and again, and the files of a
 * database are made and removed for each. Not those with a disk of their own, nor those that keep sandboxes ready:
 * kernels before 6.3 map no users on a file system in memory.
 */
function folderForData({ diskMiB, isOnDisk = false, env }: ServiceOptions): string {
  const isPlain = diskMiB === undefined && !isOnDisk && (env?.['BERTH_WARM_SANDBOXES'] ?? '0') === '0';
  return isPlain ? folderForDatabases() : diskFolder;
}

/** Where the run of the tests keeps compiled code, for the processes that it starts as well. */
export function compileCache(): Record<string, string> {
  const folder = process.env['NODE_COMPILE_CACHE'];
  return folder ? { NODE_COMPILE_CACHE: folder } : {};
}

function environment(dataDir: string, port: number, more: Record<string, string>): Record<string, string> {
  // Not the developer's own environment: a provider key in it would reach a real model.
  return {
    PATH: process.env['PATH'] ?? '/usr/bin:/bin',
    HOME: process.env['HOME'] ?? '/tmp',
    ...compileCache(),
    BERTH_DATA_DIR: dataDir,
    BERTH_PORT: String(port),
    BERTH_LOG_LEVEL: 'debug',
    BERTH_DETACH: 'never',
    BERTH_DRAIN_SECONDS: '5',
    // Those that want it say so: it is work for the machine in each of many services.
    BERTH_WARM_SANDBOXES: '0',
    // The same: to make and mount a disk for each of many agents takes longer than what most tests do with it.
    BERTH_DISK_MODE: 'watch',
    BERTH_DEFAULT_MODEL: 'demo/guide',
    // At its start a service looks for work of many kinds at once: each connection is a process that is made for that.
    BERTH_DATABASE_POOL: '4',
    // Under npm the service ends with its parent; so it does when the test process is killed.
    npm_lifecycle_event: 'test',
    ...more,
  };
}

function launch(
  args: string[],
  env: Record<string, string>,
  output: string[],
  hostsFile: string | null = null,
): Running & { stdout: string[] } {
  // As `npm start` does.
  const own = ['/bin/sh', join(repositoryDir, 'scripts/serve'), ...args];
  // Each of these programs becomes the next, so that the child's pid is the service's.
  const mount = ['unshare', '-m', 'sh', '-c', 'mount --bind "$0" /etc/hosts && exec "$@"', hostsFile ?? ''];
  const [file = '', ...rest] = hostsFile === null ? own : [...mount, ...own];
  const child = spawn(file, rest, {
    cwd: repositoryDir,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const stdout: string[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.push(text);
    stdout.push(text);
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => output.push(text));
  const running: Running = {
    child,
    // `close` comes after the last of its output.
    exited: once(child, 'close').then(([code]) => {
      open.delete(running);
      return code as number | null;
    }),
  };
  open.add(running);
  return { ...running, stdout };
}

async function ready(url: string, running: Running, deadlineMs: number): Promise<void> {
  const endMs = Date.now() + deadlineMs;
  let exited = false;
  void running.exited.then(() => (exited = true));
  for (;;) {
    if (exited) throw new Error(`The service ended with ${running.child.exitCode} before it was ready.`);
    const status = await fetch(`${url}/readyz`)
      .then(async (response) => {
        await response.arrayBuffer();
        return response.status;
      })
      .catch(() => 0);
    if (status === 200) return;
    if (Date.now() > endMs) throw new Error(`The service was not ready within ${deadlineMs} ms.`);
    await delay(25);
  }
}

async function send(
  url: string,
  key: string,
  method: string,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Reply> {
  const sent: Record<string, string> = { authorization: `Bearer ${key}`, ...headers };
  if (sent['authorization'] === '') delete sent['authorization'];
  if (body !== undefined) sent['content-type'] ??= 'application/json';
  const raw = typeof body === 'string' || body instanceof Uint8Array;
  const init: RequestInit = { method, headers: sent, redirect: 'manual' };
  if (body !== undefined) init.body = raw ? (body as NonNullable<RequestInit['body']>) : JSON.stringify(body);
  const response = await fetch(`${url}${path}`, init);
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, body: parse(text) };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
