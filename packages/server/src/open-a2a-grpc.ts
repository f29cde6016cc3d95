import { ConfigError } from './config-values.ts';
import type { Config } from './config.ts';
import type { GrpcListener } from './edges/a2a/grpc/listener.ts';
import type { Edge } from './edges/http/edge.ts';

/** A2A over gRPC, when the operator wants it (BERTH_A2A_GRPC_PORT). Its code is loaded only then. */
export function openA2aGrpc(config: Pick<Config, 'a2aGrpc' | 'host'>, edge: Edge, maxConnections: number) {
  const { a2aGrpc, host } = config;
  let listener: GrpcListener | null = null;
  return {
    /** Cards tell of it from then on. Throws ConfigError. */
    async start(): Promise<void> {
      if (a2aGrpc === null) return;
      const { createGrpcListener } = await import('./edges/a2a/grpc/listener.ts');
      listener = createGrpcListener(edge, maxConnections);
      const port = await listener.listen(a2aGrpc.port, host).catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'EADDRINUSE')
          throw new ConfigError(
            `BERTH_A2A_GRPC_PORT must be a free port; another program has ${a2aGrpc.port}.`,
          );
        throw new ConfigError(`BERTH_A2A_GRPC_PORT: ${a2aGrpc.port} cannot be taken: ${error.message}.`);
      });
      edge.addresses.a2aGrpcPort = a2aGrpc.publicPort ?? port;
      edge.log.info('A2A is served over gRPC.', { host, port });
    },
    close: async (graceMs: number): Promise<void> => listener?.close(graceMs),
  };
}
