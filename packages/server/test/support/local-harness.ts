import { spawn } from 'node:child_process';
import { createServer, request as httpRequest } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { Pace } from '../../src/domain/bucket.ts';
import type { RunningSandbox, SandboxExit } from '../../src/domain/ports/sandbox.ts';
import { prepareHarness } from '../../src/harness/launch.ts';
import type { PreparedHarness } from '../../src/harness/launch.ts';
import { Endpoint } from '../../src/harness/control/endpoint.ts';
import { harnessLinks } from '../../src/harness/link.ts';
import type { HarnessConnection, HarnessLink } from '../../src/domain/ports/harness.ts';
import { silentLog } from './log.ts';

/** A harness as a plain process on this machine, in the shape of a sandbox: for what needs no isolation. */

export interface Places {
  root: string;
  workspace: string;
  home: string;
  archive: string;
  gatewaySocket: string;
  controlSocket: string;
  remove: () => Promise<void>;
}

export async function makePlaces(): Promise<Places> {
  const root = await mkdtemp(join(tmpdir(), 'berth-harness-'));
  await chmod(root, 0o755);
  for (const name of ['workspace', 'home']) await mkdir(join(root, name));
  return {
    root,
    workspace: join(root, 'workspace'),
    home: join(root, 'home'),
    archive: join(root, 'release.tar'),
    gatewaySocket: join(root, 'gateway.sock'),
    controlSocket: join(root, 'control.sock'),
    remove: () => rm(root, { recursive: true, force: true }),
  };
}

/** Passes what comes to the socket on to `baseUrl`, without `/llm/<provider>`; the gateway without what makes it one. */
export async function relayGateway(
  socketPath: string,
  baseUrl: string,
): Promise<{ requests: IncomingMessage[]; close: () => Promise<void> }> {
  const requests: IncomingMessage[] = [];
  const server = createServer((incoming, outgoing) => {
    requests.push(incoming);
    const path = (incoming.url ?? '').replace(/^\/llm\/[^/]+(?=\/v1\/)/, '');
    const upstream = httpRequest(`${baseUrl}${path}`, { method: incoming.method, headers: incoming.headers });
    upstream.on('response', (response) => {
      outgoing.writeHead(response.statusCode ?? 502, response.headers);
      response.pipe(outgoing);
      response.on('error', () => outgoing.destroy());
    });
    upstream.on('error', () => outgoing.destroy());
    outgoing.on('close', () => upstream.destroy());
    incoming.pipe(upstream);
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    requests,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

const sourceDir = fileURLToPath(new URL('../../../harness/src', import.meta.url));
let prepared: Promise<PreparedHarness> | undefined;

/** The harness as the service prepares it, once for all tests of this process. */
export function preparedHarness(): Promise<PreparedHarness> {
  prepared ??= prepareOnce();
  return prepared;
}

async function prepareOnce(): Promise<PreparedHarness> {
  const targetDir = await mkdtemp(join(tmpdir(), 'berth-prepared-'));
  await chmod(targetDir, 0o755);
  process.once('exit', () => rmSync(targetDir, { recursive: true, force: true }));
  return prepareHarness({ sourceDir, targetDir });
}

/** Starts the real launcher, at other places than a sandbox's. */
export async function startLauncher(places: Places, env: Record<string, string>): Promise<RunningSandbox> {
  return startProcess(await launcherCommand(places), places.workspace, env);
}

/** What runs it; `options` are the launcher's own. */
export async function launcherCommand(places: Places, options: object = {}): Promise<string[]> {
  const { hostPath } = await preparedHarness();
  const given = [JSON.stringify(places), 'process.env', JSON.stringify(options)].join(', ');
  const script = `import { launch } from ${JSON.stringify(`file://${hostPath}/launcher.mjs`)};
    process.exitCode = await launch(${given}); process.exit();`;
  return [process.execPath, '--input-type=module', '-e', script];
}

export interface LinkedLauncher {
  sandbox: RunningSandbox;
  link: HarnessLink;
  connection: HarnessConnection;
}

/** The same, with its control channel: the harness is initialized. */
export async function startLinked(
  context: { after(fn: () => unknown): void },
  places: Places,
  env: Record<string, string>,
  {
    initializeTimeoutMs = 20_000,
    ...options
  }: { initializeTimeoutMs?: number; unansweredMs?: number; pace?: Pace } = {},
): Promise<LinkedLauncher> {
  const open = harnessLinks({ log: silentLog, workspace: places.workspace, ...options });
  const link = await open({ socketPath: places.controlSocket, sandboxId: 'local' });
  context.after(() => link.leave());
  const sandbox = await startLauncher(places, env);
  context.after(() => sandbox.kill());
  return { sandbox, link, connection: await link.connect(sandbox, { initializeTimeoutMs }) };
}

/** The launcher's lines as two streams, for a client that is not ours. */
export async function startWithStreams(
  context: { after(fn: () => unknown): void },
  places: Places,
  env: Record<string, string>,
): Promise<{ input: Writable; output: Readable; sandbox: RunningSandbox }> {
  const onFault = (error: unknown) => {
    throw error;
  };
  const endpoint = await Endpoint.open(places.controlSocket, { onFault });
  context.after(() => endpoint.close());
  const output = new PassThrough();
  const input = new Writable({
    write(chunk: Buffer, _encoding, done) {
      endpoint.write(chunk.toString());
      done();
    },
    final(done) {
      endpoint.end();
      done();
    },
  });
  endpoint.events = {
    onLine: (line) => output.write(`${line}\n`),
    onHello: () => endpoint.welcome(),
    onBroken: (why) => output.destroy(new Error(why)),
  };
  const sandbox = await startLauncher(places, env);
  context.after(() => sandbox.kill());
  return { input, output, sandbox };
}

export function startProcess(argv: string[], cwd: string, env: Record<string, string>): RunningSandbox {
  const [program = '', ...args] = argv;
  // A group of its own, since an end of a sandbox is the end of all that runs in it.
  const child = spawn(program, args, { cwd, env, stdio: ['pipe', 'pipe', 'pipe'], detached: true });
  const exited = new Promise<SandboxExit>((resolve) => {
    child.on('error', () => resolve({ reason: 'exit', code: 127, signal: null }));
    child.on('close', (code, signal) => resolve({ reason: signal ? 'killed' : 'exit', code, signal }));
  });
  const kill = (): Promise<SandboxExit> => {
    try {
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // It has ended already.
    }
    return exited;
  };
  return {
    id: `local-${child.pid}`,
    stdin: child.stdin,
    stdout: child.stdout,
    stderr: child.stderr,
    logFile: null,
    exited,
    processCount: () => null,
    stats: async () => ({ cpuMicros: 0, memoryBytes: 0, memoryByteSeconds: 0, pids: 1 }),
    isFrozen: false,
    freeze: async () => undefined,
    thaw: async () => undefined,
    stop: kill,
    kill,
  };
}

export function launchEnv(
  wire: 'anthropic' | 'openai-chat',
  commit: string,
  more: Record<string, string> = {},
): Record<string, string> {
  return {
    PATH: `${join(process.execPath, '..')}:/usr/bin:/bin`,
    HOME: '/nonexistent',
    BERTH_AGENT_ID: 'agent-1',
    BERTH_COMMIT: commit,
    BERTH_MODEL: 'test/model-1',
    BERTH_MODEL_WIRE: wire,
    BERTH_MODEL_CONNECTIONS: '100',
    BERTH_MODEL_TOKEN: 'sandbox-token',
    ...more,
  };
}
