import { AgentCard } from '@a2a-js/sdk';
import { A2AService } from '@a2a-js/sdk/server/grpc';
import { LegacyA2AService } from '@a2a-js/sdk/compat/v0_3/server/grpc';
import { decodeErrorInfo, decodeStatus } from '@a2a-js/sdk/errors/grpc';
import { Client, credentials, InterceptingCall, Metadata } from '@grpc/grpc-js';
import type { CallOptions, Interceptor, ServiceError } from '@grpc/grpc-js';

/** How a call of gRPC ended. */
export interface GrpcReply {
  code: number;
  details: string;
  /** Of the ErrorInfo in the details of the status. */
  reason?: string;
  domain?: string;
  /** What the service sent, read. */
  // oxlint-disable-next-line no-explicit-any -- tests read into answers of all operations
  messages: any[];
  initial: Metadata;
  trailing: Metadata;
}

export interface GrpcAsked {
  version?: '1.0' | '0.3';
  /** As the schema names it, e.g. `GetTask`. */
  method: string;
  /** A message of the schema; bytes go as they are. */
  request: unknown;
  /** Whose host is asked. */
  agentId: string;
  key: string | null;
  headers?: Record<string, string>;
  options?: CallOptions;
  /** Sees each message as it comes, and may end the call. */
  onMessage?: (message: unknown, cancel: () => void) => void;
}

interface Definition {
  path: string;
  responseStream: boolean;
  requestSerialize(value: unknown): Buffer;
  responseDeserialize(bytes: Buffer): unknown;
}

/** The port that the card of an agent tells. */
export function grpcPort(card: unknown): number {
  const found = AgentCard.fromJSON(card).supportedInterfaces.find(
    ({ protocolBinding }) => protocolBinding === 'GRPC',
  );
  return Number(found?.url.split(':')[1]);
}

/** For the SDK's clients: which host they ask, and with what key. */
export function grpcCallOptions(host: string, key: string): CallOptions {
  const withKey: Interceptor = (options, nextCall) =>
    new InterceptingCall(nextCall(options), {
      start(metadata, listener, next) {
        metadata.set('authorization', `Bearer ${key}`);
        next(metadata, listener);
      },
    });
  return { host, interceptors: [withKey] };
}

/** Speaks to the service by the definitions of the schema alone. */
export function grpcWire(port: number) {
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  return {
    async call(asked: GrpcAsked): Promise<GrpcReply> {
      const { version = '1.0', method, request, agentId, key, headers = {}, options = {} } = asked;
      const service = (version === '1.0' ? A2AService : LegacyA2AService) as unknown as Record<
        string,
        Definition
      >;
      const definition = service[method[0]!.toLowerCase() + method.slice(1)]!;
      const metadata = new Metadata();
      metadata.set('a2a-version', version);
      if (key !== null) metadata.set('authorization', `Bearer ${key}`);
      for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
      const serialize = (value: unknown) =>
        Buffer.isBuffer(value) ? value : definition.requestSerialize(value);
      const call = client.makeServerStreamRequest(
        definition.path,
        serialize,
        definition.responseDeserialize,
        request,
        metadata,
        { host: `${agentId}.localhost`, ...options },
      );
      const messages: unknown[] = [];
      let initial = new Metadata();
      call.on('metadata', (given: Metadata) => (initial = given));
      call.on('data', (message: unknown) => {
        messages.push(message);
        asked.onMessage?.(message, () => call.cancel());
      });
      const error = await new Promise<Partial<ServiceError>>((resolve) => {
        call.on('error', resolve);
        call.on('status', (status) => status.code === 0 && resolve(status));
      });
      const trailing = error.metadata ?? new Metadata();
      return { code: error.code!, details: error.details!, ...infoOf(trailing), messages, initial, trailing };
    },
    close: () => client.close(),
  };
}

function infoOf(metadata: Metadata): { reason?: string; domain?: string } {
  const [bytes] = metadata.get('grpc-status-details-bin');
  if (!Buffer.isBuffer(bytes)) return {};
  const { reason, domain } = decodeErrorInfo(Buffer.from(decodeStatus(bytes).details[0]!.value));
  return { reason, domain };
}
