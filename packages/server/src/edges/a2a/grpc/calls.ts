import { Metadata, status as codes } from '@grpc/grpc-js';
import type {
  sendUnaryData,
  Server,
  ServerUnaryCall,
  ServerWritableStream,
  StatusObject,
} from '@grpc/grpc-js';
import { a2aCapabilities } from '../../../domain/a2a-capabilities.ts';
import { tooManyValues } from '../../../domain/json-shape.ts';
import { bySize, oneStep, senderOf } from '../../../domain/slices.ts';
import type { Edge } from '../../http/edge.ts';
import { clientGone } from '../../http/gone.ts';
import { agentUrl, grpcTarget } from '../../present/agent.ts';
import { RequestMalformedError, VersionNotSupportedError } from '../errors.ts';
import { mapErrors } from '../legacy-handler.ts';
import { versionOf } from '../versions.ts';
import type { Admitted } from './admission.ts';
import { bindings } from './bindings.ts';
import { BoundedReader, TooManyFields } from './bounded-reader.ts';
import type { Binding, Method } from './bindings.ts';
import { CheckedHandler } from './checked-handler.ts';
import { endedBy } from './status.ts';
import type { Ended } from './status.ts';

type UnaryCall = ServerUnaryCall<Buffer, Buffer>;
type StreamCall = ServerWritableStream<Buffer, Buffer>;

/** Calls under way. */
export interface OpenCalls {
  /** From now on streams end, and sends that wait are answered with the task as it is. */
  stop(): void;
}

/** A status that the SDK made itself. */
class SdkStatus extends Error {
  readonly status: StatusObject;

  constructor(status: StatusObject) {
    super(status.details);
    this.status = status;
  }
}

/** Every operation of both versions, on `server`. Messages stay bytes until the caller is known. */
export function addCalls(
  server: Server,
  edge: Edge,
  admittedOf: (metadata: Metadata) => Admitted,
  onEnd: (admitted: Admitted, ended: Ended | null, isGone: boolean) => void,
): OpenCalls {
  const open = new Set<AbortController>();
  let isStopping = false;
  const asIs = (bytes: Buffer) => bytes;

  /** Runs `work` and says how it ended; a client that has gone hears nothing of it. */
  async function run(
    call: UnaryCall | StreamCall,
    work: (context: Context) => Promise<Buffer | null>,
    answer: (ended: Ended | null, bytes: Buffer | null) => void,
  ): Promise<void> {
    const admitted = admittedOf(call.metadata);
    admitted.isWorkedOn = true;
    const stop = new AbortController();
    // It is told after each call, also after one that was answered.
    call.once('cancelled', () => stop.abort(clientGone));
    if (call.cancelled || isStopping) stop.abort(clientGone);
    open.add(stop);
    let bytes: Buffer | null = null;
    let ended: Ended | null = null;
    try {
      bytes = await work({ admitted, signal: stop.signal, isStopping: () => isStopping, edge });
    } catch (error) {
      ended = endOf(error, admitted.requestId);
    }
    open.delete(stop);
    admitted.body.drop();
    const isGone = call.cancelled;
    answer(ended, bytes);
    onEnd(admitted, ended, isGone);
  }

  for (const binding of bindings) {
    for (const [name, method] of Object.entries(binding.methods)) {
      if (method.responseStream) {
        const handle = (call: StreamCall) =>
          void run(
            call,
            (context) => stream(binding, name, method, call, context),
            (ended) => {
              if (ended) call.emit('error', ended.status);
              else call.end();
            },
          );
        server.register(method.path, handle, asIs, asIs, 'serverStream');
      } else {
        const handle = (call: UnaryCall, callback: sendUnaryData<Buffer>) =>
          void run(
            call,
            (context) => unary(binding, name, method, call, context),
            (ended, bytes) => callback(ended?.status ?? null, bytes),
          );
        server.register(method.path, handle, asIs, asIs, 'unary');
      }
    }
  }
  return {
    stop() {
      isStopping = true;
      for (const call of open) call.abort();
    },
  };
}

interface Context {
  admitted: Admitted;
  signal: AbortSignal;
  isStopping(): boolean;
  edge: Edge;
}

async function unary(
  binding: Binding,
  name: string,
  method: Method,
  call: UnaryCall,
  context: Context,
): Promise<Buffer> {
  const { request, metadata, operations, told } = await prepare(
    binding,
    method,
    call,
    context,
    async () => {},
  );
  const ignored = () => undefined;
  try {
    const value = await new Promise((resolve, reject) => {
      const answer = (status: StatusObject | null, value: unknown) =>
        status ? reject(told(status)) : resolve(value);
      const sdkCall = {
        request,
        metadata,
        sendMetadata: ignored,
        write: ignored,
        emit: ignored,
        end: ignored,
      };
      operations[name]!(sdkCall, answer);
    });
    return method.responseSerialize(value);
  } finally {
    // It leaves with the answer, in one write.
    call.sendMetadata(headOf(context.admitted));
  }
}

async function stream(
  binding: Binding,
  name: string,
  method: Method,
  call: StreamCall,
  context: Context,
): Promise<null> {
  const drained = () => drainOf(call, context.signal);
  const { request, metadata, operations, told } = await prepare(binding, method, call, context, drained);
  call.sendMetadata(headOf(context.admitted));
  await new Promise<void>((resolve, reject) => {
    let failed: StatusObject | null = null;
    const sdkCall = {
      request,
      metadata,
      sendMetadata: () => undefined,
      write(value: unknown) {
        // As over HTTP, where it is answered when its stream begins.
        context.admitted.body.drop();
        call.write(method.responseSerialize(value));
      },
      emit: (_name: 'error', status: StatusObject) => (failed = status),
      end: () => (failed ? reject(told(failed)) : resolve()),
    };
    operations[name]!(sdkCall, () => undefined);
  });
  return null;
}

async function prepare(
  binding: Binding,
  method: Method,
  call: UnaryCall | StreamCall,
  { admitted, signal, isStopping, edge }: Context,
  drained: () => Promise<void>,
) {
  requireVersion(call.metadata, binding);
  const { agent, caller } = admitted;
  const taskCall = {
    agent,
    caller,
    services: edge.services,
    origin: agentUrl(agent.id, edge.addresses),
    grpcTarget: grpcTarget(agent.id, edge.addresses),
    a2aCapabilities: edge.addresses.a2aCapabilities ?? a2aCapabilities,
  };
  const handler = new CheckedHandler(taskCall, binding.version, { signal, drained, isStopping });
  // The SDK would tell the words of any error; what a caller may be told is decided here, by the error itself.
  let thrown: unknown;
  const operations = binding.operations(
    mapErrors(handler, (error) => {
      thrown = error;
      return error as Error;
    }),
  );
  const metadata = new Metadata();
  metadata.set('a2a-version', binding.version);
  return {
    request: await bySize(
      senderOf(caller, signal),
      call.request.length,
      oneStep(() => decoded(method, call.request)),
    ),
    metadata,
    operations,
    told: (status: StatusObject): unknown => thrown ?? new SdkStatus(status),
  };
}

function decoded(method: Method, bytes: Buffer): unknown {
  try {
    return method.requestDeserialize(new BoundedReader(bytes));
  } catch (error) {
    if (error instanceof TooManyFields) throw new RequestMalformedError(tooManyValues('The message'));
    throw new RequestMalformedError(
      'The message is not of the schema of this operation, or not valid UTF-8.',
    );
  }
}

/** The name of the service says the version already; a request may say it again, but nothing else. */
function requireVersion(metadata: Metadata, { version }: Binding): void {
  const header = metadata.get('a2a-version').join(', ').trim();
  if (header !== '' && versionOf(header, '') !== version)
    throw new VersionNotSupportedError(
      `This service speaks A2A ${version}; ${version === '1.0' ? 'a2a.v1.A2AService speaks 0.3' : 'lf.a2a.v1.A2AService speaks 1.0'}.`,
    );
}

function endOf(error: unknown, requestId: string): Ended {
  if (!(error instanceof SdkStatus)) return endedBy(error, requestId);
  // What the SDK has no word for is a fault of ours or its, and its text is for the log.
  if (error.status.code === codes.UNKNOWN) return endedBy(new Error(error.message), requestId);
  return {
    failure: endedBy(new RequestMalformedError(error.message), requestId).failure,
    status: error.status,
  };
}

function headOf({ requestId, head }: Admitted): Metadata {
  const metadata = new Metadata();
  metadata.set('x-request-id', requestId);
  for (const [name, value] of Object.entries(head)) metadata.set(name.toLowerCase(), value);
  return metadata;
}

/** Resolves when the client has taken what was written, or hears no more. */
function drainOf(call: StreamCall, signal: AbortSignal): Promise<void> {
  if (!call.writableNeedDrain || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const settle = () => {
      call.off('drain', settle);
      signal.removeEventListener('abort', settle);
      resolve();
    };
    call.once('drain', settle);
    signal.addEventListener('abort', settle, { once: true });
  });
}
