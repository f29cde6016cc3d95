import { LegacyA2AService, legacyGrpcService } from '@a2a-js/sdk/compat/v0_3/server/grpc';
import type { A2ARequestHandler } from '@a2a-js/sdk/server';
import { A2AService, grpcService, UserBuilder } from '@a2a-js/sdk/server/grpc';
import type { BinaryReader } from '@bufbuild/protobuf/wire';
import type { Metadata, StatusObject } from '@grpc/grpc-js';
import type { Version } from '../versions.ts';

/** One operation, as the SDK describes it. */
export interface Method {
  path: string;
  responseStream: boolean;
  /** The SDK's codecs take bytes, or a reader of them. */
  requestDeserialize(message: Uint8Array | BinaryReader): unknown;
  responseSerialize(value: unknown): Buffer;
}

/** What the SDK's services use of a call. */
export interface SdkCall {
  request: unknown;
  metadata: Metadata;
  sendMetadata(): void;
  write(value: unknown): void;
  emit(name: 'error', status: StatusObject): void;
  end(): void;
}

/** The second argument is for operations that answer once. */
export type Operation = (
  call: SdkCall,
  callback: (status: StatusObject | null, value: unknown) => void,
) => unknown;

/** One service of gRPC: its name says which version of A2A is spoken. */
export interface Binding {
  version: Version;
  methods: Record<string, Method>;
  /** The operations by name, with the shapes of its version, over a handler of ours. */
  operations(requestHandler: A2ARequestHandler): Record<string, Operation>;
}

const userBuilder = UserBuilder.noAuthentication;

export const bindings: Binding[] = [
  {
    version: '1.0',
    methods: A2AService as unknown as Record<string, Method>,
    operations: (requestHandler) =>
      grpcService({ requestHandler, userBuilder }) as unknown as Record<string, Operation>,
  },
  {
    version: '0.3',
    methods: LegacyA2AService as unknown as Record<string, Method>,
    operations: (requestHandler) =>
      legacyGrpcService({ requestHandler, userBuilder }) as unknown as Record<string, Operation>,
  },
];
