import { chmodSync } from 'node:fs';
import { chmod, rm } from 'node:fs/promises';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Network } from '../domain/address-ranges.ts';
import { EgressRefused } from '../domain/egress-policy.ts';
import { Gate } from '../domain/gate.ts';
import { limits as defaults } from '../domain/limits.ts';
import { mayGoOn, readInTurn, refuseExpectation, takeOver } from '../domain/one-request.ts';
import type { Egress, EgressOwner, EgressRecorder, ReadEgressPolicy } from '../domain/ports/egress.ts';
import { refuseSocket } from './answers.ts';
import { EgressConnection } from './connection.ts';
import { connectAddress, type ConnectAddress } from './dial.ts';
import type { Interceptor } from './interceptor.ts';
import { createMeter } from './meter.ts';
import { forwardPlain, forwardUpgrade } from './plain.ts';
import { createResolver, type ResolveName } from './resolver.ts';
import { EgressSession, type EgressLimits, type EgressShared } from './session.ts';
import { openTunnel } from './tunnel.ts';

export interface EgressProxyOptions {
  readPolicy: ReadEgressPolicy;
  recorder: EgressRecorder;
  /** Ranges that are reached although they are not public (BERTH_ALLOW_PRIVATE_NETWORKS). */
  allowPrivateNetworks: readonly Network[];
  /** Of all sandboxes together. */
  maxConnections: number;
  /** What handles the brokered secrets of a sandbox; null where there are none. */
  interceptor: (owner: EgressOwner) => Interceptor | null;
  /** Whether programs that know no proxy can be led to it on this host. */
  transparentPossible: () => Promise<boolean>;
  resolve?: ResolveName;
  connect?: ConnectAddress;
  limits?: Partial<EgressLimits>;
}

/** The proxy of all sandboxes of this node: a Unix socket each, which says whose a connection is, and one parser. */
export function createEgressProxy(options: EgressProxyOptions): Egress {
  const meter = createMeter(options.recorder);
  const shared: EgressShared = {
    dial: {
      resolve: options.resolve ?? createResolver(),
      allow: options.allowPrivateNetworks,
      connect: options.connect ?? connectAddress,
    },
    meter,
    recorder: options.recorder,
    open: 0,
    limits: {
      connections: defaults.egressConnections,
      connectionsPerSecond: defaults.egressConnectionsPerSecond,
      headMs: defaults.egressHeadMs,
      idleMs: defaults.egressIdleMs,
      totalMs: defaults.egressTotalMs,
      ...options.limits,
    },
  };
  const sessions = new Map<EgressSession, Server>();
  const connections = new WeakMap<object, EgressConnection>();
  const refreshes = new WeakMap<EgressSession, Promise<void>>();
  let closedRefusals = 0;

  // It never listens: connections of all sandboxes are handed to it. One request each, so none is read as another's.
  const http = createHttpServer({
    insecureHTTPParser: false,
    // Missing ones are refused by us, with the reason.
    requireHostHeader: false,
    maxHeaderSize: defaults.egressHeadBytes,
    requestTimeout: 0,
    headersTimeout: 0,
    keepAliveTimeout: 0,
  });
  // The size of the head bounds them; a request with too many is refused, never cut short.
  http.maxHeadersCount = 0;
  http.on('connection', (client) => {
    const { session } = connections.get(client)!;
    readInTurn(client, { account: session.reading, onCut: () => session.charge() });
  });
  http.on('request', (message, response) => {
    response.shouldKeepAlive = false;
    if (mayGoOn(message, response)) void forwardPlain(begin(message), message, response);
  });
  http.on('checkExpectation', refuseExpectation);
  http.on('upgrade', (message, socket, rest) => {
    if (mayGoOn(message, null))
      void forwardUpgrade(begin(message), message, socket as Socket, takeOver(message.socket, rest));
  });
  http.on('connect', (message, _socket, rest) => {
    if (mayGoOn(message, null))
      void openTunnel(begin(message), message, takeOver(message.socket, rest), serve);
  });
  http.on('clientError', (_error, socket) => {
    const connection = connections.get(socket);
    if (!connection || !socket.writable) return void socket.destroy();
    const error = new EgressRefused('bad_request', 'The request could not be read.');
    refuseSocket(connection, socket as Socket, error);
  });

  function begin(message: IncomingMessage): EgressConnection {
    const connection = connections.get(message.socket)!;
    connection.headCame();
    return connection;
  }

  function serve(connection: EgressConnection): void {
    connection.awaitHead();
    http.emit('connection', connection.client);
    // In a tunnel it was paused, with what had been read put back.
    connection.client.resume();
  }

  /** One after the other, so that the policy that was read last is the one that holds. */
  function refresh(session: EgressSession): Promise<void> {
    const before = refreshes.get(session) ?? Promise.resolve();
    const next = before
      .catch(() => undefined)
      .then(() => options.readPolicy(session.owner.agentId))
      .then((policy) => session.setPolicy(policy));
    refreshes.set(session, next);
    return next;
  }

  function accept(session: EgressSession, client: Socket): void {
    const isFull =
      session.connections.size >= shared.limits.connections || shared.open >= options.maxConnections;
    const connection = new EgressConnection(session, client);
    connections.set(client, connection);
    if (!isFull) {
      const pauseMs = session.pauseMs();
      if (pauseMs === 0) return serve(connection);
      connection.headCame();
      return void setTimeout(() => !client.destroyed && serve(connection), pauseMs).unref();
    }
    const error = new EgressRefused('too_many_connections', 'Too many connections to the outside are open.');
    refuseSocket(connection, client, error);
  }

  return {
    async open(owner, runDir) {
      const path = join(runDir, 'egress.sock');
      await rm(path, { force: true });
      const session = new EgressSession(owner, shared, options.interceptor(owner));
      const server = createServer({ allowHalfOpen: true }, (client) => accept(session, client));
      // A socket that nobody may write to lets nobody connect, which costs us nothing.
      const gate = new Gate(defaults.egressArrivals, (isShut) => chmodSync(path, isShut ? 0 : 0o666));
      session.gate = gate.watch(server);
      // Beyond what gets an answer, they are closed without one.
      server.maxConnections = shared.limits.connections + 16;
      server.on('error', () => undefined);
      sessions.set(session, server);
      try {
        await refresh(session);
        await listen(server, path);
      } catch (error) {
        sessions.delete(session);
        throw error;
      }
      const wanted = session.transparentPorts;
      const ports = wanted && (await options.transparentPossible()) ? wanted : null;
      const env = ports
        ? { BERTH_EGRESS: 'transparent', BERTH_EGRESS_PORTS: ports.join(',') }
        : { BERTH_EGRESS: 'proxy' };
      return { transparent: ports !== null, env, close: () => close(session, server) };
    },
    async policyChanged(agentId) {
      const own = [...sessions.keys()].filter(({ owner }) => agentId === null || owner.agentId === agentId);
      await Promise.all(own.map(refresh));
    },
    stats() {
      const refusals = [...sessions.keys()].reduce((sum, session) => sum + session.refusals, closedRefusals);
      return { connections: shared.open, refusals, ...meter.stats() };
    },
    close() {
      for (const [session, server] of sessions) close(session, server);
      meter.sampleAll();
    },
  };

  function close(session: EgressSession, server: Server): void {
    if (!sessions.delete(session)) return;
    closedRefusals += session.refusals;
    server.close();
    session.close();
  }
}

async function listen(server: Server, path: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, resolve);
  });
  // The sandbox's user is another one; the folder around it is open for nobody else.
  await chmod(path, 0o666);
}
