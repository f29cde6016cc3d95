import {
  request as startRequest,
  type ClientRequest,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import { bracketed, EgressRefused } from '../domain/egress-policy.ts';
import { headerPairs } from '../domain/hop-by-hop.ts';
import { limits } from '../domain/limits.ts';
import { refuseResponse, refuseSocket } from './answers.ts';
import { paceAnswer } from '../domain/paced-answers.ts';
import type { EgressConnection } from './connection.ts';
import type { RequestHead } from './interceptor.ts';
import { readPlainRequest, type BodyFrame, type PlainRequest } from './request-head.ts';
import { refused } from './session.ts';

/** Forwards one plain HTTP request; the head and the framing of the body are written anew, so nothing is smuggled. */
export async function forwardPlain(
  connection: EgressConnection,
  message: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  try {
    const plain = admitPlain(connection, message);
    const start = plain.frame.kind === 'none' ? Buffer.alloc(0) : await firstBytes(message);
    if (start.length > 0) checkBody(connection, plain, start);
    const upstream = await openUpstream(connection, plain);
    const outgoing = send(connection, upstream, plain, plain.frame, []);
    outgoing.on('response', (incoming) => answer(connection, incoming, response));
    outgoing.on('error', () => {
      const error = new EgressRefused(
        'connect_failed',
        `${plain.target.host} gave no answer that could be read.`,
      );
      if (!connection.client.destroyed) refuseResponse(connection, response, error);
    });
    if (start.length > 0) outgoing.write(start);
    message.pipe(outgoing);
  } catch (error) {
    refuseResponse(connection, response, refused(error));
  }
}

/** A WebSocket over plain HTTP: after the host has switched, bytes pass in both directions. */
export async function forwardUpgrade(
  connection: EgressConnection,
  message: IncomingMessage,
  client: Socket,
  rest: Buffer,
): Promise<void> {
  try {
    const plain = admitPlain(connection, message);
    if (!plain.isWebSocket || plain.frame.kind !== 'none') {
      throw new EgressRefused('bad_request', 'Over plain HTTP this proxy switches to WebSocket only.');
    }
    const upstream = await openUpstream(connection, plain);
    const outgoing = send(connection, upstream, plain, plain.frame, [
      ['Connection', 'Upgrade'],
      ['Upgrade', 'websocket'],
    ]);
    outgoing.on('upgrade', (incoming, socket, head) => {
      client.write(responseHead(incoming));
      client.write(head);
      socket.write(rest);
      client.pipe(socket).pipe(client);
    });
    outgoing.on('response', (incoming) => {
      client.write(responseHead(incoming, 'close'));
      incoming.pipe(client);
    });
    outgoing.on('error', () => connection.destroy());
    outgoing.end();
  } catch (error) {
    refuseSocket(connection, client, refused(error));
  }
}

function admitPlain(connection: EgressConnection, message: IncomingMessage): PlainRequest {
  const plain = readPlainRequest(message, connection.tunnel?.target ?? null);
  connection.admit(plain.target);
  const verdict = connection.session.interceptor?.plainRequest(plain.target, plain.head);
  if (!verdict || verdict.kind === 'pass') return plain;
  if (verdict.kind === 'refuse') throw new EgressRefused(verdict.reason, verdict.message);
  return { ...plain, head: verdict.head };
}

function checkBody(connection: EgressConnection, plain: PlainRequest, start: Buffer): void {
  const verdict = connection.session.interceptor?.plainBody(plain.target, start);
  if (verdict?.kind === 'refuse') throw new EgressRefused(verdict.reason, verdict.message);
}

/** In a tunnel the connection was made when the tunnel was. */
async function openUpstream(connection: EgressConnection, plain: PlainRequest): Promise<Socket> {
  const made = connection.tunnel?.upstream;
  if (connection.tunnel) connection.tunnel.upstream = null;
  return made && !made.destroyed ? made : connection.dial(plain.target);
}

function send(
  connection: EgressConnection,
  upstream: Socket,
  plain: PlainRequest,
  frame: BodyFrame,
  more: RequestHead['headers'],
): ClientRequest {
  const { target, head } = plain;
  const host = bracketed(target.host) + (target.port === 80 ? '' : `:${target.port}`);
  const framing: RequestHead['headers'] =
    frame.kind === 'chunked'
      ? [['Transfer-Encoding', 'chunked']]
      : frame.kind === 'length'
        ? [['Content-Length', String(frame.bytes)]]
        : [];
  const close: RequestHead['headers'] = more.length > 0 ? more : [['Connection', 'close']];
  const headers = [['Host', host], ...head.headers, ...framing, ...close].flat();
  const sent = startRequest({
    createConnection: () => upstream,
    method: head.method,
    path: head.path,
    headers,
    setHost: false,
    insecureHTTPParser: false,
    maxHeaderSize: limits.egressHeadBytes,
  });
  paceAnswer(sent, { account: connection.session.reading, isOfNode: true });
  return sent;
}

function answer(connection: EgressConnection, incoming: IncomingMessage, response: ServerResponse): void {
  try {
    response.writeHead(incoming.statusCode ?? 502, incoming.statusMessage, endToEnd(incoming).flat());
  } catch {
    return connection.destroy();
  }
  incoming.on('error', () => connection.destroy());
  incoming.pipe(response);
}

const ofThisHop = /^(connection|keep-alive|proxy-.*|transfer-encoding|upgrade|trailer)$/i;

function endToEnd(incoming: IncomingMessage): [string, string][] {
  return [
    ...headerPairs(incoming.rawHeaders).filter(([name]) => !ofThisHop.test(name)),
    ['Connection', 'close'],
  ];
}

function responseHead(incoming: IncomingMessage, connectionValue?: 'close'): string {
  const pairs = connectionValue ? endToEnd(incoming) : headerPairs(incoming.rawHeaders);
  const lines = pairs.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  return `HTTP/1.1 ${incoming.statusCode} ${incoming.statusMessage}\r\n${lines}\r\n`;
}

/** The body's beginning, at most 16 KiB; empty when there is none. What is left stays to be read. */
function firstBytes(message: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    message.once('error', reject);
    message.once('close', () => resolve(Buffer.alloc(0)));
    const read = () => {
      const chunk = message.read(Math.min(message.readableLength, limits.egressHeadBytes)) as Buffer | null;
      if (chunk === null && !message.readableEnded) return message.once('readable', read);
      resolve(chunk ?? Buffer.alloc(0));
      return message;
    };
    read();
  });
}
