import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:http';
import { connect } from 'node:http2';
import { grpcFrame, grpcStream } from './grpc-stream.ts';

export interface HeldBack {
  status: number;
  text: string;
  // oxlint-disable-next-line no-explicit-any -- tests read into answers of all operations
  body: any;
}

/** A request whose head has arrived at the service; its body follows when the result is called. */
export async function heldBack(
  port: number,
  path: string,
  headers: Record<string, string>,
  body: object,
): Promise<() => Promise<HeldBack>> {
  const bytes = Buffer.from(JSON.stringify(body));
  const asked = request({
    host: '127.0.0.1',
    port,
    path,
    method: 'POST',
    agent: false,
    headers: {
      'content-type': 'application/json',
      'content-length': bytes.length,
      expect: '100-continue',
      ...headers,
    },
  });
  asked.flushHeaders();
  await once(asked, 'continue');
  return async () => {
    asked.end(bytes);
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) text += chunk;
    return { status: response.statusCode!, text, body: text.startsWith('{') ? JSON.parse(text) : undefined };
  };
}

/** The same for a unary call over gRPC: the bytes of its answer. */
export async function grpcHeldBack(
  port: number,
  path: string,
  headers: Record<string, string>,
  message: Buffer,
): Promise<() => Promise<Buffer>> {
  const session = connect(`http://127.0.0.1:${port}`);
  await once(session, 'remoteSettings');
  const stream = grpcStream(session, path, headers);
  // What was written before the answer to a ping has been read before it.
  await new Promise<void>((resolve, reject) => {
    session.ping((error) => (error ? reject(error) : resolve()));
  });
  return async () => {
    stream.end(grpcFrame(message));
    const parts: Buffer[] = [];
    for await (const part of stream) parts.push(part as Buffer);
    session.close();
    return Buffer.concat(parts).subarray(5);
  };
}
