import { a2aCapabilities, type A2aCapability } from './domain/a2a-capabilities.ts';
import { ConfigError, number } from './config-values.ts';
import { vars, type Env } from './config-variables.ts';

export interface A2aGrpcConfig {
  port: number;
  /** The port that agent cards tell; null = the one that is listened on. */
  publicPort: number | null;
}

/** Null: A2A is not served over gRPC. Throws ConfigError. */
export function readA2aGrpc(env: Env, httpPort: number): A2aGrpcConfig | null {
  const port = vars.a2aGrpcPort(env);
  const publicPort = vars.a2aGrpcPublicPort(env);
  const wanted = number('BERTH_A2A_GRPC_PORT', port, 0, 0, 65535);
  const told = number('BERTH_A2A_GRPC_PUBLIC_PORT', publicPort, 443, 1, 65535);
  if (port === '') return null;
  if (wanted !== 0 && wanted === httpPort)
    throw new ConfigError('BERTH_A2A_GRPC_PORT must be another port than BERTH_PORT.');
  return { port: wanted, publicPort: publicPort === '' ? null : told };
}

/** Throws ConfigError. */
export function readA2aCapabilities(env: Env): readonly A2aCapability[] {
  const text = vars.a2aCapabilities(env);
  if (text === 'none') return [];
  if (text === '') return a2aCapabilities;
  const names = text.split(',').map((name) => name.trim());
  return names.map((name) => {
    const found = a2aCapabilities.find((one) => one === name);
    if (!found)
      throw new ConfigError(
        `BERTH_A2A_CAPABILITIES must be none, or some of ${a2aCapabilities.join(', ')}, comma-separated; it is "${text}".`,
      );
    return found;
  });
}
