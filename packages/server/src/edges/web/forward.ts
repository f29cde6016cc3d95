import { request as startRequest } from 'node:http';
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream';
import { DomainError } from '../../domain/errors.ts';
import type { Fields } from '../../domain/hop-by-hop.ts';
import { onSideEnded } from '../../domain/one-request.ts';
import { paceAnswer } from '../../domain/paced-answers.ts';
import type { Head } from '../http/answer.ts';
import { answerFields, framing, ownFields, requestFields } from './fields.ts';
import type { Told } from './fields.ts';
import { noHttp, tooLate, type WebTimes } from './failures.ts';
import { Silence } from './silence.ts';

export interface Forwarded {
  request: IncomingMessage;
  /** Path and query, as sent. */
  target: string;
  told: Told;
  /** The service's fields for the answer. */
  head: Head;
  maxHeadBytes: number;
  times: WebTimes;
}

/** Sends a request's head to the agent's server, on a connection that no other request has or gets. */
export function startForward(given: Forwarded, connection: Duplex, hop: Fields): ClientRequest {
  const { request, target, told, maxHeadBytes } = given;
  const sent = startRequest({
    createConnection: () => connection,
    method: request.method!,
    path: target,
    headers: [...requestFields(request, told), ...hop].flat(),
    setHost: false,
    insecureHTTPParser: false,
    maxHeaderSize: maxHeadBytes,
  });
  paceAnswer(sent);
  return sent;
}

/**
 * Hands a request to the agent's server and its answer to the client, both as they come. Resolves once the
 * head of the answer is out; what fails later can only be told by cutting the client's connection. Throws `bad_gateway`,
 * `gateway_timeout`, `invalid_request`.
 */
export async function forward(
  given: Forwarded,
  response: ServerResponse,
  open: () => Promise<Duplex>,
): Promise<void> {
  const { request, times } = given;
  const frame = framing(request);
  const connection = await open();
  const leave = () => connection.destroy();
  response.once('close', leave);
  connection.once('close', () => response.off('close', leave));
  if (response.destroyed) connection.destroy();
  try {
    // One that ends the connection after an answer without having read the body resets it, and what of the answer is on its way is lost.
    const sent = startForward(given, connection, [...frame, ['Connection', 'keep-alive']]);
    const answer = await answered(given, sent, connection);
    if (response.destroyed) throw gone();
    const own = ownFields(given.head);
    response.writeHead(answer.statusCode!, answerFields(answer, own, given.told.isKeyed).flat());
    // The head is seen before there is a body: streams of events begin so.
    response.flushHeaders();
    // Nothing can be put into this answer to see whether a client that ends its side from here on is still there.
    const { socket } = request;
    const left = () => response.destroy();
    const forget = onSideEnded(socket, left);
    const silence = new Silence(times.idleMs, () =>
      connection.destroy(new Error('Nothing passed for too long.')),
    );
    for (const stream of [request, answer]) stream.on('data', silence.heard);
    connection.once('close', silence.end);
    // The pipeline hears it from here on. With what else listens Node would warn of a leak: these are more than it expects.
    response.off('close', leave);
    pipeline(answer, response, (error) => {
      forget();
      if (error) response.destroy();
      connection.destroy();
      // The client's next request comes after what the server has not read of this one.
      request.resume();
    });
  } catch (error) {
    connection.destroy();
    request.unpipe();
    throw error;
  }
}

/** Sends the body, and waits for the head of the answer. */
function answered(given: Forwarded, sent: ClientRequest, connection: Duplex): Promise<IncomingMessage> {
  const { request, times } = given;
  return new Promise((resolve, reject) => {
    const refuse = (error: DomainError) => {
      silence.end();
      reject(error);
    };
    const silence = new Silence(times.answerMs, () => {
      refuse(tooLate(times));
      connection.destroy();
    });
    request.on('data', silence.heard);
    sent.once('response', (answer) => {
      silence.end();
      request.off('data', silence.heard);
      resolve(answer);
    });
    // Nobody asked it to switch to anything.
    sent.once('upgrade', () => refuse(noHttp()));
    sent.on('error', (cause) => refuse(noHttp(cause)));
    sent.once('close', () => refuse(noHttp()));
    // One that is answered before it has come whole goes on to be read: the server may take it or leave it.
    request.pipe(sent);
    request.once('aborted', () => connection.destroy());
  });
}

function gone(): DomainError {
  return new DomainError('bad_gateway', 'The client has gone away.');
}
