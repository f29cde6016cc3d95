import type { AddressInfo, Socket } from 'node:net';
import { createServer } from 'node:net';
import { configureTextEncoding, getTextEncoding } from '@bufbuild/protobuf/wire';
import { Server, ServerCredentials, status as codes } from '@grpc/grpc-js';
import { limits } from '../../../domain/limits.ts';
import { createHostNames } from '../../hosts/host-names.ts';
import type { Edge } from '../../http/edge.ts';
import { admission } from './admission.ts';
import type { Admitted, Refused } from './admission.ts';
import { addCalls } from './calls.ts';
import type { Ended } from './status.ts';

export interface GrpcListener {
  /** Resolves with the bound port. Rejects as `net.Server` does. */
  listen(port: number, host: string): Promise<number>;
  /** Takes no new connection, ends streams, waits for the other calls, and after `graceMs` cuts them. */
  close(graceMs: number): Promise<void>;
}

/** HTTP/2 without TLS (A2A 1.0, section 10); a proxy in front adds that, as for HTTP. */
export function createGrpcListener(edge: Edge, maxConnections: number): GrpcListener {
  refuseBrokenText();
  const stats = edge.metrics.statsOf({ method: 'all', path: 'agent host: a2a-grpc' });
  const told = (call: Omit<Refused, keyof Ended>, ended: Ended | null, isGone = false) => {
    const ms = performance.now() - call.startedAt;
    stats.observe(ended?.failure.httpStatus ?? 200, ms / 1000);
    const fields = {
      requestId: call.requestId,
      status: codes[isGone ? codes.CANCELLED : (ended?.status.code ?? codes.OK)],
      ms: Math.round(ms * 100) / 100,
      keyId: call.keyId,
      agentHost: call.label,
      method: 'gRPC',
      path: call.path,
    };
    if (ended?.failure.cause !== undefined)
      edge.log.error('request failed', { ...fields, cause: ended.failure.cause });
    else edge.log.info('request', fields);
  };
  const onEnd = (call: Admitted, ended: Ended | null, isGone: boolean) =>
    told({ ...call, keyId: call.caller.keyId }, ended, isGone);

  const labelOfHost = createHostNames(edge.addresses);
  const { interceptor, of } = admission(edge, labelOfHost, (refused) => told(refused, refused));
  const server = new Server({
    'grpc.max_receive_message_length': limits.a2aBodyBytes,
    'grpc.max_concurrent_streams': limits.a2aGrpcStreams,
    'grpc.max_connection_idle_ms': limits.a2aGrpcIdleMs,
    // As the comments in streams of server-sent events do: the connection stays, and one that is dead is noticed.
    'grpc.keepalive_time_ms': limits.sseHeartbeatMs,
    'grpc.keepalive_timeout_ms': limits.sseHeartbeatMs,
    'grpc.enable_channelz': 0,
    interceptors: [interceptor],
  });
  const calls = addCalls(server, edge, of, onEnd);
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const sockets = new Set<Socket>();
  // A server of our own, so that connections can be counted and a taken port is told.
  const listening = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
    injector.injectConnection(socket);
  });
  listening.maxConnections = maxConnections;

  return {
    listen: (port, host) =>
      new Promise((resolve, reject) => {
        listening.once('error', reject);
        listening.listen(port, host, () => {
          listening.off('error', reject);
          resolve((listening.address() as AddressInfo).port);
        });
      }),
    async close(graceMs) {
      const closed = new Promise<void>((resolve) => listening.close(() => resolve()));
      calls.stop();
      const timer = setTimeout(() => {
        server.forceShutdown();
        for (const socket of sockets) socket.destroy();
      }, graceMs);
      await new Promise<void>((resolve) => server.tryShutdown(() => resolve()));
      await closed;
      clearTimeout(timer);
    },
  };
}

/** A text that is not UTF-8 is refused (Protocol Buffers, "Scalar value types"), not mended to another one. */
function refuseBrokenText(): void {
  const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  configureTextEncoding({ ...getTextEncoding(), decodeUtf8: (bytes) => strict.decode(bytes) });
}
