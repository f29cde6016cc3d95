import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { finished } from 'node:stream';
import { headerPairs, listedIn } from '../../domain/hop-by-hop.ts';
import { answerSocket } from '../http/socket-answer.ts';
import { noHttp, tooLate } from './failures.ts';
import { answerFields, ownFields } from './fields.ts';
import type { Forwarded } from './forward.ts';
import { startForward } from './forward.ts';
import { Silence } from './silence.ts';

/** Of what a server refuses an upgrade with. */
const MAX_REFUSAL_BYTES = 1024 * 1024;

/**
 * A WebSocket to the agent's server: its handshake passes, and after it bytes in both directions. Resolves when the client
 * has its answer, one way or the other. Throws before anything was written.
 */
export async function tunnel(
  given: Forwarded,
  socket: Duplex,
  firstBytes: Buffer,
  connection: Duplex,
): Promise<void> {
  const leave = () => void connection.destroy();
  socket.once('close', leave);
  if (socket.destroyed) return leave();
  const reply = await shaken(given, connection).catch((error: unknown) => {
    connection.destroy();
    throw error;
  });
  const own = ownFields(given.head);
  if (reply.kind === 'refused') {
    try {
      await answerSocket(socket, await refusal(given, reply.answer, own, connection));
    } finally {
      connection.destroy();
    }
    return;
  }
  const fields = answerFields(reply.answer, own, given.told.isKeyed).filter(
    ([name]) => !/^content-length$/i.test(name),
  );
  const lines = [['Connection', 'Upgrade'], ['Upgrade', 'websocket'], ...fields].map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  socket.write(Buffer.from(`HTTP/1.1 101 Switching Protocols\r\n${lines.join('')}\r\n`, 'latin1'));
  if (reply.head.length > 0) socket.write(reply.head);
  if (firstBytes.length > 0) connection.write(firstBytes);
  const silence = new Silence(given.times.idleMs, leave);
  for (const stream of [socket, connection]) stream.on('data', silence.heard);
  connection.once('close', () => {
    silence.end();
    if (!socket.writableEnded) socket.end();
    // What it has written still leaves, at the pace of the client; then that has a moment to end its side.
    const cut = () => void socket.destroy();
    socket.once('close', new Silence(given.times.idleMs, cut).end);
    finished(socket, { readable: false }, () => void setTimeout(cut, given.times.closeMs).unref());
  });
  socket.pipe(connection).pipe(socket);
}

type Shaken =
  | { kind: 'switched'; answer: IncomingMessage; head: Buffer }
  | { kind: 'refused'; answer: IncomingMessage };

function shaken(given: Forwarded, connection: Duplex): Promise<Shaken> {
  const { times } = given;
  return new Promise((resolve, reject) => {
    const sent = startForward(given, connection, [
      ['Connection', 'Upgrade'],
      ['Upgrade', 'websocket'],
    ]);
    const silence = new Silence(times.answerMs, () => {
      reject(tooLate(times));
      connection.destroy();
    });
    const refuse = (cause?: unknown) => reject(noHttp(cause));
    sent.once('upgrade', (answer, _socket, head) => {
      const isWebSocket = listedIn(headerPairs(answer.rawHeaders), 'upgrade').includes('websocket');
      if (answer.statusCode === 101 && isWebSocket) resolve({ kind: 'switched', answer, head });
      else refuse();
    });
    sent.once('response', (answer) => resolve({ kind: 'refused', answer }));
    sent.on('error', refuse);
    sent.once('close', () => {
      silence.end();
      refuse();
    });
    sent.once('upgrade', silence.end).once('response', silence.end);
    sent.end();
  });
}

/** Throws `gateway_timeout` for one that does not end, `bad_gateway` for one that breaks off. */
async function refusal(
  { told, times }: Forwarded,
  answer: IncomingMessage,
  own: Record<string, string>,
  connection: Duplex,
): Promise<Response> {
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    connection.destroy();
  }, times.answerMs).unref();
  try {
    return await whole(answer, own, told.isKeyed);
  } catch (cause) {
    throw isLate ? tooLate(times) : noHttp(cause);
  } finally {
    clearTimeout(timer);
  }
}

async function whole(
  answer: IncomingMessage,
  own: Record<string, string>,
  isKeyed: boolean,
): Promise<Response> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_REFUSAL_BYTES) break;
    chunks.push(chunk);
  }
  const headers = new Headers();
  for (const [name, value] of answerFields(answer, own, isKeyed))
    if (!/^content-length$/i.test(name)) headers.append(name, value);
  const status = answer.statusCode!;
  const isEmpty = status === 204 || status === 205 || status === 304;
  return new Response(isEmpty ? null : Buffer.concat(chunks), { status, headers });
}
