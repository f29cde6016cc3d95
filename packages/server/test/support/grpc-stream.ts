import type { ClientHttp2Session, ClientHttp2Stream } from 'node:http2';

/** A call of gRPC whose bytes are the test's own: what is written to it is sent as it is. */
export function grpcStream(
  session: ClientHttp2Session,
  path: string,
  headers: Record<string, string>,
): ClientHttp2Stream {
  return session.request(
    { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers', ...headers },
    { endStream: false },
  );
}

/** What stands before a message of so many bytes. */
export function grpcFrameHead(bytes: number, isCompressed = false): Buffer {
  const head = Buffer.alloc(5);
  head[0] = isCompressed ? 1 : 0;
  head.writeUInt32BE(bytes, 1);
  return head;
}

export const grpcFrame = (message: Buffer, isCompressed = false): Buffer =>
  Buffer.concat([grpcFrameHead(message.length, isCompressed), message]);
