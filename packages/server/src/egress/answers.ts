import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { egressRemedy, type EgressReason, type EgressRefused } from '../domain/egress-policy.ts';
import type { EgressConnection } from './connection.ts';

/** The status that a program inside gets with a refusal. */
export function statusOf(reason: EgressReason): { status: number; text: string } {
  switch (reason) {
    case 'bad_request':
      return { status: 400, text: 'Bad Request' };
    case 'name_not_found':
    case 'connect_failed':
    case 'upstream_certificate':
      return { status: 502, text: 'Bad Gateway' };
    case 'too_many_connections':
      return { status: 503, text: 'Service Unavailable' };
    case 'timeout':
      return { status: 504, text: 'Gateway Timeout' };
    case 'egress_off':
    case 'not_listed':
    case 'denied':
    case 'address_literal':
    case 'private_address':
    case 'name_mismatch':
    case 'name_missing':
    case 'name_hidden':
    case 'not_tls':
    case 'placeholder_to_wrong_host':
    case 'placeholder_not_replaced':
      return { status: 403, text: 'Forbidden' };
  }
}

function bodyOf(connection: EgressConnection, error: EgressRefused): string {
  const { target, session } = connection;
  const remedy = target && egressRemedy(session.owner.agentId, error.reason, target);
  return `${error.message} (${error.reason})\n${remedy ? `The owner of this agent can change that: ${remedy}\n` : ''}`;
}

/** Says on a connection without a request of Node's server why nothing went out, reports it, and closes. */
export function refuseSocket(connection: EgressConnection, socket: Socket, error: EgressRefused): void {
  connection.report(error);
  const { status, text } = statusOf(error.reason);
  const body = bodyOf(connection, error);
  socket.end(
    `HTTP/1.1 ${status} ${text}\r\nX-Berth-Egress-Error: ${error.reason}\r\nContent-Type: text/plain; charset=utf-8\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
  closeSoon(connection);
}

export function refuseResponse(
  connection: EgressConnection,
  response: ServerResponse,
  error: EgressRefused,
): void {
  connection.report(error);
  if (response.headersSent) return connection.destroy();
  const body = bodyOf(connection, error);
  const { status, text } = statusOf(error.reason);
  response.writeHead(status, text, {
    'X-Berth-Egress-Error': error.reason,
    'Content-Type': 'text/plain; charset=utf-8',
    'Content-Length': Buffer.byteLength(body),
    Connection: 'close',
  });
  response.end(body);
  closeSoon(connection);
}

/** Level fatal, access_denied (RFC 8446, section 6.2): what a client of TLS understands as a no. */
const tlsAlert = Buffer.from([21, 3, 1, 0, 2, 2, 49]);

/** In a tunnel that was answered with 200 already there is no place for a text. */
export function refuseTunnel(connection: EgressConnection, error: EgressRefused, isTls: boolean): void {
  connection.report(error);
  if (isTls) connection.client.end(tlsAlert);
  else connection.client.end();
  closeSoon(connection);
}

/** A program that reads nothing, or sends on, does not keep its connection. */
function closeSoon(connection: EgressConnection): void {
  const { client } = connection;
  client.resume();
  client.once('finish', () => setTimeout(() => connection.destroy(), 200).unref());
  setTimeout(() => connection.destroy(), 2_000).unref();
}
