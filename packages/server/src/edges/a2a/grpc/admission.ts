import type { IncomingHttpHeaders } from 'node:http';
import type { ServerHttp2Stream } from 'node:http2';
import { constants } from 'node:http2';
import { ServerInterceptingCall, status as codes } from '@grpc/grpc-js';
import type { Metadata, StatusObject, ServerInterceptor } from '@grpc/grpc-js';
import { DomainError } from '../../../domain/errors.ts';
import { newId } from '../../../domain/ids.ts';
import { limits } from '../../../domain/limits.ts';
import type { Agent } from '../../../domain/nouns.ts';
import type { Caller } from '../../../services/api.ts';
import { hostKey } from '../../hosts/credentials.ts';
import { narrowed } from '../../hosts/serve-host.ts';
import type { Head } from '../../http/answer.ts';
import type { Edge } from '../../http/edge.ts';
import { admitKey } from '../../http/gate.ts';
import { MessageBytes } from './message-bytes.ts';
import type { MessageHold } from './message-bytes.ts';
import { Places } from './places.ts';
import { endedBy } from './status.ts';
import type { Ended } from './status.ts';
import { boundUnpacking } from './unpacking.ts';

/** A call whose key and agent are known. */
export interface Admitted {
  path: string;
  /** What stands before the app domain in the authority. */
  label: string;
  requestId: string;
  startedAt: number;
  agent: Agent;
  caller: Caller;
  /** RateLimit and RateLimit-Policy, as over HTTP. */
  head: Head;
  /** The bytes of its message. */
  body: MessageHold;
  /** From then on it is the operation that drops them, however it ends. */
  isWorkedOn: boolean;
}

export type Refused = Pick<Admitted, 'path' | 'label' | 'requestId' | 'startedAt'> & {
  keyId: string | null;
} & Ended;

/** Nobody hears it: the call has ended. */
const hasGone = { code: codes.CANCELLED, details: 'The call ended before its message was unpacked.' };

/** A client that sends its message slower than this is let go, as over HTTP; so is one whose message waits longer to be unpacked. */
const MESSAGE_TIMEOUT_MS = 30_000;

/**
 * Who calls whom, before anything of the message is read: the key, its rate, and the agent whose host the authority names.
 * What is admitted is kept under the metadata of the call.
 */
export function admission(
  edge: Edge,
  labelOfHost: (host: string | undefined) => string | null,
  onRefused: (refused: Refused) => void,
): { interceptor: ServerInterceptor; of(metadata: Metadata): Admitted } {
  const kept = new WeakMap<Metadata, Admitted>();
  const places = new Places({
    total: limits.a2aGrpcUnpackings,
    waitingOfOrg: limits.a2aGrpcWaitingToUnpack,
    waitMs: MESSAGE_TIMEOUT_MS,
  });
  const messageBytes = new MessageBytes(edge.flight);

  const interceptor: ServerInterceptor = (method, call) => {
    let timer: NodeJS.Timeout | undefined;
    let found: Admitted | null = null;
    let cameBytes = 0;
    let isWhole = false;
    const gone = new AbortController();
    const late = () => {
      const error = new DomainError('invalid_request', 'The message did not arrive in time.');
      call.sendStatus(endedBy(error, newId()).status);
    };
    const refused = (error: unknown): StatusObject => {
      const ended = endedBy(error, found!.requestId);
      onRefused({ ...found!, keyId: found!.caller.keyId, ...ended });
      return ended.status;
    };
    /** Throws the status with which the call is to end when there are too many. */
    const hold = (bytes: number): void => {
      try {
        found!.body.add(bytes);
      } catch (error) {
        throw refused(error);
      }
    };
    const awaitMore = (): void => {
      if (!gone.signal.aborted) timer = setTimeout(late, MESSAGE_TIMEOUT_MS);
    };
    /** Nobody is late who waits for us: that it has sent all is told only when its message is unpacked. */
    const enter = async (sentBytes: number): Promise<() => void> => {
      clearTimeout(timer);
      try {
        const giveBack = await places.enter(found!.caller, sentBytes, gone.signal);
        return () => {
          giveBack();
          awaitMore();
        };
      } catch (error) {
        throw error === hasGone ? error : refused(error);
      }
    };
    /** False: there are too many, and the call has ended. */
    const came = (bytes: number): boolean => {
      cameBytes += bytes;
      try {
        hold(bytes);
        return true;
      } catch (status) {
        call.sendStatus(status as StatusObject);
        return false;
      }
    };
    return new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata(metadata, admit) {
            const { remoteAddress } = call.getConnectionInfo();
            const headers = { ...headersOf(metadata), host: call.getHost() };
            const incoming = { headers, socket: { remoteAddress } };
            const label = labelOfHost(edge.proxies.host(incoming)) ?? '';
            const asked = { path: method.path, label, requestId: newId(), startedAt: performance.now() };
            const trace = { keyId: null as string | null };
            admitted(edge, incoming, label, trace).then(
              (known) => {
                found = { ...asked, ...known, body: messageBytes.open(known.caller), isWorkedOn: false };
                kept.set(metadata, found);
                onBytes(call, came);
                boundUnpacking(call, {
                  enter,
                  // What was sent counts already.
                  hold: (bytes) => hold(Math.max(0, bytes - cameBytes)),
                });
                awaitMore();
                admit(metadata);
              },
              (error: unknown) => {
                const ended = endedBy(error, asked.requestId);
                call.sendStatus(ended.status);
                onRefused({ ...asked, ...trace, ...ended });
              },
            );
          },
          onReceiveHalfClose(next) {
            isWhole = true;
            clearTimeout(timer);
            next();
          },
          onCancel() {
            clearTimeout(timer);
            gone.abort(hasGone);
            if (found && !found.isWorkedOn) found.body.drop();
            if (!isWhole) closeEnded(call);
          },
        }),
    });
  };
  return { interceptor, of: (metadata) => kept.get(metadata)! };
}

const streamOf = (call: object): ServerHttp2Stream => (call as { stream: ServerHttp2Stream }).stream;

/**
 * Of a call that has ended, its stream ends too, although the client may not have said all that it has to say (RFC 9113, section 8.1): it
 * keeps what has come of its message as long as it is open, and that counts no more.
 */
function closeEnded(call: object): void {
  streamOf(call).close(constants.NGHTTP2_NO_ERROR);
}

/**
 * Tells of what comes of a call's message, until `take` is false. It is put together where nobody looks, and the call does not say
 * how its bytes come, so that its stream is asked; a test tells when that is another one.
 */
function onBytes(call: object, take: (bytes: number) => boolean): void {
  const stream = streamOf(call);
  const onData = (piece: Buffer): void => {
    if (!take(piece.length)) stream.off('data', onData);
  };
  stream.prependListener('data', onData);
}

async function admitted(
  edge: Edge,
  incoming: { headers: IncomingHttpHeaders; socket: { remoteAddress: string | undefined } },
  label: string,
  trace: { keyId: string | null },
): Promise<Pick<Admitted, 'agent' | 'caller' | 'head'>> {
  const head: Head = {};
  const caller = await admitKey(
    edge,
    () => hostKey(incoming.headers),
    () => edge.proxies.clientAddress(incoming),
    head,
  );
  trace.keyId = caller.keyId;
  const agent = await edge.services.agents.get(caller, label);
  return { agent, caller: narrowed(caller, agent), head };
}

/** As Node has them of HTTP/1.1: several values of a name are joined. Binary values are nothing of ours. */
function headersOf(metadata: Metadata): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of Object.keys(metadata.getMap()))
    if (!name.endsWith('-bin')) headers[name] = metadata.get(name).join(', ');
  return headers;
}
