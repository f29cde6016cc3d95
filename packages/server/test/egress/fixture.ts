import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttps } from 'node:https';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { EgressPolicy } from '../../src/domain/egress-policy.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Egress, EgressRefusal, EgressTraffic } from '../../src/domain/ports/egress.ts';
import type { Interceptor } from '../../src/egress/interceptor.ts';
import { createEgressProxy, type EgressProxyOptions } from '../../src/egress/proxy.ts';

/** Public addresses that no test reaches: the proxy checks them as it does all, and `connect` leads to a local server. */
const address = { good: '93.184.216.1', other: '93.184.216.2', redirect: '93.184.216.3' };

export interface World {
  proxy: Egress;
  owner: { orgId: string; agentId: string; sandboxId: string };
  folder: string;
  /** Of the proxy. */
  socketPath: string;
  certificate: string;
  /** What the launcher inside is told. */
  env: Record<string, string>;
  /** By name; a test may change it between look-ups. */
  names: Map<string, string[]>;
  /** `address:port` of each connection that was begun outside. */
  dialled: string[];
  /** Names that were looked up outside. */
  asked: string[];
  refusals: EgressRefusal[];
  traffic: EgressTraffic[];
  /** Heads and bodies that arrived at the outside, as `METHOD host path body`. */
  arrived: string[];
  /** Sets the policy as the API does. */
  setPolicy(change: Partial<EgressPolicy>): Promise<void>;
}

export interface WorldOptions extends Partial<EgressProxyOptions> {
  policy?: Partial<EgressPolicy>;
  intercept?: Interceptor | null;
  runDir?: string;
}

/** A proxy with a socket, in front of an internet that has ports 80, 443 (TLS), 22 (speaks first) and 7 (echo). */
export async function egressWorld(t: TestContext, options: WorldOptions = {}): Promise<World> {
  const folder = mkdtempSync(join(tmpdir(), 'berth-egress-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const arrived: string[] = [];
  const outside = await startOutside(t, folder, arrived);
  const names = new Map<string, string[]>([
    ['good.test', [address.good]],
    ['other.test', [address.other]],
    ['redirect.test', [address.redirect]],
  ]);
  const dialled: string[] = [];
  const asked: string[] = [];
  const refusals: EgressRefusal[] = [];
  const traffic: EgressTraffic[] = [];
  const owner = { orgId: newId(), agentId: newId(), sandboxId: newId() };
  let current: EgressPolicy = {
    mode: 'list',
    allow: ['good.test'],
    deny: [],
    presets: [],
    transparent: false,
    ...options.policy,
  };
  const proxy = createEgressProxy({
    readPolicy: async () => current,
    recorder: { refused: (refusal) => refusals.push(refusal), passed: (row) => traffic.push(row) },
    allowPrivateNetworks: [],
    maxConnections: 1_000,
    transparentPossible: async () => true,
    interceptor: () => options.intercept ?? null,
    resolve: async (host) => {
      asked.push(host);
      return names.get(host) ?? [];
    },
    connect: (to, port) => {
      dialled.push(`${to}:${port}`);
      return connect({ host: '127.0.0.1', port: outside[port] ?? 1, allowHalfOpen: true });
    },
    ...options,
  });
  t.after(() => proxy.close());
  const runDir = options.runDir ?? folder;
  const { env } = await proxy.open(owner, runDir);
  return {
    proxy,
    owner,
    folder,
    socketPath: join(runDir, 'egress.sock'),
    certificate: join(folder, 'test.crt'),
    env,
    names,
    dialled,
    asked,
    refusals,
    traffic,
    arrived,
    async setPolicy(change) {
      current = { ...current, ...change };
      await proxy.policyChanged(owner.agentId);
    },
  };
}

async function startOutside(
  t: TestContext,
  folder: string,
  arrived: string[],
): Promise<Record<number, number>> {
  const tls = makeCertificate(folder);
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    let body = '';
    request.setEncoding('latin1').on('data', (text: string) => (body += text));
    request.on('end', () => {
      arrived.push(`${request.method} ${request.headers.host} ${request.url} ${body}`);
      if (request.url?.startsWith('/to/')) {
        response.writeHead(302, { location: decodeURIComponent(request.url.slice(4)) });
        return void response.end();
      }
      const file = fileOf(folder, request.url ?? '');
      if (file) return void response.end(file);
      response.end(`hello from ${request.headers.host}\n`);
    });
  };
  const http = createHttp(answer);
  http.on('upgrade', (_request, socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
    socket.pipe(socket);
  });
  const https = createHttps(tls, answer);
  const speaksFirst = createServer((socket) => void socket.end('SSH-2.0-test\r\n'));
  const echo = createServer((socket) => void socket.pipe(socket));
  const ports: Record<number, number> = {};
  for (const [port, server] of [
    [80, http],
    [443, https],
    [22, speaksFirst],
    [7, echo],
  ] as [number, Server][]) {
    const sockets = new Set<Socket>();
    server.on('connection', (socket: Socket) => {
      sockets.add(socket);
      socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    ports[port] = (server.address() as AddressInfo).port;
    t.after(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
  }
  return ports;
}

/** A package of a registry, or a file of the repository that a test has put into the folder. */
function fileOf(folder: string, url: string): Buffer | string | null {
  if (url === '/npm/thing') {
    const version = { name: 'thing', version: '1.2.3', dist: { tarball: 'https://good.test/npm/thing.tgz' } };
    return JSON.stringify({
      name: 'thing',
      'dist-tags': { latest: '1.2.3' },
      versions: { '1.2.3': version },
    });
  }
  if (!/^\/repo\.git\/[\w./-]+(\?|$)/.test(url)) return null;
  try {
    return readFileSync(join(folder, url.replace(/\?.*/, '')));
  } catch {
    return null;
  }
}

function makeCertificate(folder: string): { key: Buffer; cert: Buffer } {
  const names = ['good', 'other', '*.good', 'redirect', 'private', 'elsewhere'].map(
    (name) => `DNS:${name}.test`,
  );
  const made = spawnSync(
    'openssl',
    ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'].concat([
      '-keyout',
      'test.key',
      '-out',
      'test.crt',
      '-days',
      '2',
      '-subj',
      '/CN=good.test',
      '-addext',
      // A literal address among them: what reaches a host that it must not is answered, not failed by its certificate.
      `subjectAltName=${names.join(',')},IP:${address.other}`,
    ]),
    { cwd: folder },
  );
  if (made.status !== 0) throw new Error(made.stderr.toString());
  return { key: readFileSync(join(folder, 'test.key')), cert: readFileSync(join(folder, 'test.crt')) };
}

/** A connection that nobody closes ends the test that waits for it. */
const EXCHANGE_MS = 60_000;

/** Sends bytes to the proxy and resolves with everything that came back, once the other side has closed. */
export function exchange(socketPath: string, bytes: string | Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath);
    let all = '';
    const timer = setTimeout(() => socket.destroy(new Error(`Still open; so far came: ${all}`)), EXCHANGE_MS);
    socket.setEncoding('latin1').on('data', (text: string) => (all += text));
    socket.on('error', (error: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      if (error.code === 'ECONNRESET' || error.code === 'EPIPE') resolve(all);
      else reject(error);
    });
    socket.on('end', () => {
      clearTimeout(timer);
      socket.end();
      resolve(all);
    });
    socket.write(bytes);
  });
}

/** A CONNECT; resolves with the open tunnel, or the head and text of the refusal. */
export function openTunnel(
  socketPath: string,
  authority: string,
): Promise<{ socket: Socket; status: number; head: string }> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath);
    let all = '';
    const onData = (chunk: Buffer) => {
      all += chunk.toString('latin1');
      const end = all.indexOf('\r\n\r\n');
      if (end < 0) return;
      socket.off('data', onData);
      socket.pause();
      const rest = all.slice(end + 4);
      if (rest !== '') socket.unshift(Buffer.from(rest, 'latin1'));
      resolve({ socket, status: Number(/^HTTP\/1\.1 (\d{3})/.exec(all)?.[1]), head: all });
    };
    socket.on('data', onData);
    socket.on('error', reject);
    socket.on('close', () => reject(new Error(`The connection was closed without an answer: ${all}`)));
    socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
  });
}

export function reasonOf(answer: string): string {
  return /x-berth-egress-error: (\w+)/i.exec(answer)?.[1] ?? '(none)';
}
