import { spawn } from 'node:child_process';
import { createServer, request as httpRequest } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RunningSandbox, SandboxExit } from '../../src/domain/ports/sandbox.ts';
import type { Log } from '../../src/domain/log.ts';

/** A harness as a plain process on this machine, in the shape of a sandbox: for what needs no isolation. */

export const silentLog: Log = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => silentLog,
};

export interface Places {
  root: string;
  workspace: string;
  home: string;
  archive: string;
  gatewaySocket: string;
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

const launcher = new URL('../../../harness/src/launcher.ts', import.meta.url).href;

/** Starts the real launcher, at other places than a sandbox's. */
export function startLauncher(
  places: Places,
  env: Record<string, string>,
  flags: string[] = [],
): RunningSandbox {
  const paths = JSON.stringify(places);
  const script = `import { launch } from ${JSON.stringify(launcher)};
    process.exitCode = await launch(${paths}, process.env); process.exit();`;
  return startProcess(
    [process.execPath, ...flags, '--input-type=module', '-e', script],
    places.workspace,
    env,
  );
}

export function startProcess(argv: string[], cwd: string, env: Record<string, string>): RunningSandbox {
  const [program = '', ...args] = argv;
  const child = spawn(program, args, { cwd, env, stdio: ['pipe', 'pipe', 'pipe'] });
  const exited = new Promise<SandboxExit>((resolve) => {
    child.on('error', () => resolve({ reason: 'exit', code: 127, signal: null }));
    child.on('close', (code, signal) => resolve({ reason: signal ? 'killed' : 'exit', code, signal }));
  });
  return {
    id: `local-${child.pid}`,
    stdin: child.stdin,
    stdout: child.stdout,
    stderr: child.stderr,
    exited,
    stats: async () => ({ cpuMicros: 0, memoryBytes: 0, pids: 1 }),
    kill: () => {
      child.kill('SIGKILL');
      return exited;
    },
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
    BERTH_MODEL_TOKEN: 'sandbox-token',
    ...more,
  };
}
