import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import { connect, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { EgressRefusal } from '../../src/domain/ports/egress.ts';
import type { BrokeredSecret } from '../../src/domain/ports/secret-broker.ts';
import { withBroker } from '../../src/egress/broker/brokered-egress.ts';
import { createSecretBroker } from '../../src/egress/broker/secret-broker.ts';
import { createEgressProxy } from '../../src/egress/proxy.ts';
import { readAuthorities } from '../../src/repos/ca-bundle.ts';
import { collect, fixture, type Fixture, type Outcome } from '../sandbox/fixture.ts';
import { makeOutsideCertificates } from './broker-world.ts';
import { preparedHarness } from './local-harness.ts';
import { silentLog } from './log.ts';

/** As the launcher does it: the way out is opened, and the script gets its variables, or none in transparent mode. */
const launcher = `
import { spawn } from 'node:child_process';
import { openEgress } from '/opt/berth/harness/egress.mjs';
const way = await openEgress('/run/berth/egress.sock', process.env);
const env = { ...process.env, ...(process.env.BERTH_EGRESS === 'transparent' ? {} : way) };
const child = spawn('/bin/sh', ['-c', process.argv[1]], { env, stdio: 'inherit' });
child.on('exit', (code) => process.exit(code ?? 1));`;

export type EgressModeInside = 'proxy' | 'transparent';

export interface Arrived {
  host: string;
  url: string;
  authorization: string;
}

/** Secrets, the proxy and the broker in front of an https server of this process, and real sandboxes behind them. */
export async function brokerSandbox(
  t: TestContext,
  names: string[],
  secrets: BrokeredSecret[],
  mode: EgressModeInside = 'proxy',
  driver: Fixture = fixture(),
) {
  t.after(() => driver.close());
  const outside = makeOutsideCertificates(names);
  const arrived: Arrived[] = [];
  const refusals: EgressRefusal[] = [];
  const world = {
    secrets,
    answer: (_message: IncomingMessage, response: ServerResponse): void => void response.end('fine\n'),
  };
  const server = createServer({ key: outside.key, cert: outside.cert }, (message, response) => {
    const { host = '', authorization = '' } = message.headers;
    arrived.push({ host, url: message.url ?? '', authorization });
    world.answer(message, response);
  });
  server.on('tlsClientError', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const broker = createSecretBroker({
    secrets: {
      brokeredNames: async () => world.secrets.map(({ key, hosts }) => ({ key, hosts })),
      brokeredValues: async () => ({ secrets: world.secrets, earlier: [] }),
      earlierHosts: async () => [],
    },
    records: { save: async () => undefined, load: async () => ({ hasStarted: false, state: null }) },
    authorities: (await readAuthorities([])) + outside.ca,
    log: silentLog,
  });
  const proxy = withBroker(
    createEgressProxy({
      readPolicy: async () => ({
        mode: 'list',
        allow: names,
        deny: [],
        presets: [],
        transparent: mode === 'transparent',
      }),
      recorder: { refused: (refusal) => refusals.push(refusal), passed: () => undefined },
      allowPrivateNetworks: [],
      maxConnections: 1_000,
      transparentPossible: async () => true,
      interceptor: ({ sandboxId }) => broker.interceptorOf(sandboxId),
      resolve: async (host) => (names.includes(host) ? ['93.184.216.1'] : []),
      connect: () => connect({ host: '127.0.0.1', port, allowHalfOpen: true }),
    }),
    broker,
  );
  t.after(() => {
    proxy.close();
    broker.closeAll();
    server.closeAllConnections();
    server.close();
  });
  const { hostPath, nodeDir } = await preparedHarness();

  /** Runs a script in a fresh sandbox of the agent, with everything that it finds its way out by. */
  async function run(
    script: string,
    more: Record<string, string> = {},
  ): Promise<Outcome & { env: Record<string, string> }> {
    const id = newId();
    const runDir = join(driver.folder, `run-${id}`);
    mkdirSync(runDir, { mode: 0o755 });
    const owner = { orgId: newId(), agentId: newId(), sandboxId: id };
    const opened = await proxy.open(owner, runDir);
    const env = {
      PATH: '/opt/berth/node/bin:/usr/bin:/bin',
      HOME: '/home/agent',
      LANG: 'C.UTF-8',
      ...opened.env,
      ...more,
    };
    const command = ['/opt/berth/node/bin/node', '--input-type=module', '-e', launcher, script];
    const binds = [
      { hostPath: nodeDir, path: '/opt/berth/node' },
      { hostPath, path: '/opt/berth/harness' },
    ];
    const limits = {
      memoryBytes: 1024 * 1024 * 1024,
      cpus: 2,
      pids: 128,
      diskBytes: 256 * 1024 * 1024,
      openFiles: 1024,
    };
    const sandbox = await driver.driver.start(
      driver.spec(command, { id, runDir, env, binds, limits, transparentEgress: opened.transparent }),
    );
    // To the ends of its outputs, which may come after its own.
    const outcome = await collect(sandbox);
    opened.close();
    return { env, ...outcome };
  }

  return { driver: driver.driver, world, arrived, refusals, run };
}

/** Answers as git's own server for repositories below `root` (CGI, RFC 3875); the body is already framed. */
export function gitBackend(root: string, message: IncomingMessage, response: ServerResponse): void {
  const [path = '', query = ''] = (message.url ?? '').split('?');
  const child = spawn('git', ['http-backend'], {
    env: {
      PATH: process.env['PATH'] ?? '',
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      PATH_INFO: path,
      QUERY_STRING: query,
      REQUEST_METHOD: message.method ?? 'GET',
      CONTENT_TYPE: message.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: message.headers['content-encoding'] ?? '',
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  message.pipe(child.stdin);
  let bytes = Buffer.alloc(0);
  const onData = (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    const end = bytes.indexOf('\r\n\r\n');
    if (end === -1) return;
    child.stdout.off('data', onData);
    const lines = bytes.subarray(0, end).toString().split('\r\n');
    const pairs = lines.map(
      (line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)] as const,
    );
    const status = pairs.find(([name]) => name === 'Status')?.[1];
    const headers = pairs.filter(([name]) => name !== 'Status').flat();
    response.writeHead(status ? Number.parseInt(status, 10) : 200, headers);
    response.write(bytes.subarray(end + 4));
    child.stdout.pipe(response);
  };
  child.stdout.on('data', onData);
}
