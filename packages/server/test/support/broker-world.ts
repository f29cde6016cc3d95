import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer, type Server } from 'node:https';
import { connect as connectTcp, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import type { EgressReason, EgressTarget } from '../../src/domain/egress-policy.ts';
import type { BrokeredSecret } from '../../src/domain/ports/secret-broker.ts';
import { createBroker } from '../../src/egress/broker/broker.ts';
import { BrokerSession } from '../../src/egress/broker/session.ts';

/** An authority of the world outside and a server certificate for `names`, made by OpenSSL and not by our own code. */
export function makeOutsideCertificates(names: string[]): { ca: string; key: string; cert: string } {
  const folder = mkdtempSync(join(tmpdir(), 'berth-outside-'));
  const openssl = (...args: string[]): void => {
    const done = spawnSync('openssl', args, { cwd: folder });
    if (done.status !== 0) throw new Error(done.stderr.toString());
  };
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const san = `subjectAltName=${names.map((name) => `DNS:${name}`).join()}`;
  const sign = ['x509', '-req', '-in', 'h.csr', '-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial'];
  try {
    openssl(
      'req',
      '-x509',
      ...key,
      '-keyout',
      'ca.key',
      '-out',
      'ca.crt',
      '-days',
      '2',
      '-subj',
      '/CN=Outside',
    );
    openssl('req', ...key, '-keyout', 'h.key', '-out', 'h.csr', '-subj', '/CN=outside', '-addext', san);
    openssl(...sign, '-out', 'h.crt', '-days', '2', '-copy_extensions', 'copy');
    const read = (name: string) => readFileSync(join(folder, name), 'utf8');
    return { ca: read('ca.crt'), key: read('h.key'), cert: read('h.crt') };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export interface SeenRequest {
  method: string;
  url: string;
  rawHeaders: string[];
  headers: IncomingMessage['headers'];
  body: string;
}

export interface Report {
  reason: EgressReason;
  message: string;
}

export interface Answer {
  status: number;
  headers: IncomingMessage['headers'];
  rawHeaders: string[];
  body: string;
}

export type BrokerWorld = Awaited<ReturnType<typeof brokerWorld>>;

/** Hosts that are in the certificate of the world outside. */
export const outsideNames = [
  'api.example.com',
  'other.example.com',
  'wild.example.org',
  'git.example.com',
  'once.example.com',
];

/**
 * The broker between a client of this process and an https server of this process, over real sockets, with the proxy
 * left out: every target that the session takes is dialled to the server.
 */
export async function brokerWorld(secrets: BrokeredSecret[], options: { headMs?: number } = {}) {
  const outside = makeOutsideCertificates(outsideNames);
  const seen: SeenRequest[] = [];
  const reports: Report[] = [];
  const dialled: EgressTarget[] = [];
  const sockets = new Set<Duplex>();
  const world = {
    secrets,
    earlier: [] as BrokeredSecret[],
    reads: 0,
    charges: 0,
    /** Requests whose head has arrived. */
    begun: 0,
    aborted: 0,
    answer: echo as RequestListener,
    dialPort: 0,
    readError: false,
  };
  const server: Server = createHttpsServer({ key: outside.key, cert: outside.cert }, (message, response) => {
    world.begun += 1;
    collect(message).then(
      (body) => {
        const { method = '', url = '', rawHeaders, headers } = message;
        seen.push({ method, url, rawHeaders, headers, body });
        world.answer(message, response);
      },
      () => (world.aborted += 1),
    );
  });
  server.on('connection', (socket) => sockets.add(socket));
  server.on('tlsClientError', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  world.dialPort = (server.address() as AddressInfo).port;

  const broker = createBroker({ trusted: outside.ca, ...options });
  const session = new BrokerSession({
    seed: randomBytes(32),
    secrets: secrets.map(({ key, hosts }) => ({ key, hosts })),
    earlierHosts: ['once.example.com'],
    read: async () => {
      world.reads += 1;
      if (world.readError) throw new Error('the database is away');
      return { secrets: world.secrets, earlier: world.earlier };
    },
  });
  const interceptor = broker.interceptor(session);

  async function dial(target: EgressTarget): Promise<Socket> {
    dialled.push(target);
    const socket = connectTcp(world.dialPort, '127.0.0.1');
    sockets.add(socket);
    socket.on('error', () => socket.destroy());
    await once(socket, 'connect');
    return socket;
  }

  const targets: EgressTarget[] = [];
  /** A connection from inside, as the proxy hands it on: paused, with its first bytes put back. */
  const clients: Socket[] = [];
  const front = createServer((client) => {
    sockets.add(client);
    clients.push(client);
    client.on('error', () => client.destroy());
    client.once('data', (first) => {
      client.pause();
      client.unshift(first);
      const target = targets.shift()!;
      interceptor.tunnel({
        target,
        client,
        dial,
        report: (reason, message) => void reports.push({ reason, message }),
        charge: () => (world.charges += 1),
      });
    });
  });
  front.listen(0, '127.0.0.1');
  await once(front, 'listening');

  function raw(target: EgressTarget): Socket {
    targets.push(target);
    const socket = connectTcp((front.address() as AddressInfo).port, '127.0.0.1');
    sockets.add(socket);
    socket.on('error', () => undefined);
    return socket;
  }

  /** TLS to a host as a program inside has it, which believes the sandbox's authority only. */
  function tls(host = 'api.example.com', options: ConnectionOptions = {}, port = 443): TLSSocket {
    return connectTls({
      socket: raw({ host, port }),
      servername: host,
      ca: session.authority.certificate,
      ALPNProtocols: ['http/1.1'],
      ...options,
    });
  }

  async function fetch(
    path: string,
    options: {
      host?: string;
      port?: number;
      method?: string;
      headers?: Record<string, string | string[]>;
      body?: string | Buffer;
      socket?: TLSSocket;
    } = {},
  ): Promise<Answer> {
    const { host = 'api.example.com', port = 443, body } = options;
    const socket = options.socket ?? tls(host, {}, port);
    const outgoing = request({
      createConnection: () => socket,
      host,
      port,
      path,
      method: options.method ?? (body === undefined ? 'GET' : 'POST'),
      headers: { host: port === 443 ? host : `${host}:${port}`, ...options.headers },
    });
    outgoing.end(body);
    const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
    const text = await collect(incoming);
    const { statusCode = 0, headers, rawHeaders } = incoming;
    return { status: statusCode, headers, rawHeaders, body: text };
  }

  return {
    world,
    session,
    interceptor,
    seen,
    /** The proxy's ends of the connections from inside. */
    clients,
    outside,
    reports,
    dialled,
    server,
    raw,
    tls,
    fetch,
    placeholder: (key: string) => session.placeholders.textOf(key),
    async close() {
      for (const socket of sockets) socket.destroy();
      front.close();
      broker.close();
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

async function collect(stream: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('latin1');
}

/** What a request was, told back in the body. */
function echo(message: IncomingMessage, response: ServerResponse): void {
  const { method, url, headers } = message;
  response.writeHead(200, { 'content-type': 'application/json', 'x-echo': headers.authorization ?? '' });
  response.end(JSON.stringify({ method, url, headers }));
}
