import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { parseAddress } from '../domain/address-ranges.ts';
import { EgressRefused, type EgressAllowed, type EgressTarget } from '../domain/egress-policy.ts';
import { readHostName } from '../domain/egress-rules.ts';
import { refuseSocket, refuseTunnel } from './answers.ts';
import type { EgressConnection } from './connection.ts';
import { readConnectTarget } from './request-head.ts';
import { refused } from './session.ts';
import { maxPieces, readStart, type Start } from './start.ts';

/** Reads the requests of a tunnel that carries plain HTTP. */
export type ServeHttp = (connection: EgressConnection) => void;

const established = 'HTTP/1.1 200 Connection Established\r\n\r\n';

/** Answers a CONNECT. Nothing of what the program sends goes out before its first bytes were found to be in order. */
export async function openTunnel(
  connection: EgressConnection,
  message: IncomingMessage,
  rest: Buffer,
  serveHttp: ServeHttp,
): Promise<void> {
  const { client, session } = connection;
  client.pause();
  if (rest.length > 0) client.unshift(rest);
  try {
    if (connection.tunnel) throw new EgressRefused('bad_request', 'A tunnel takes no CONNECT.');
    const target = readConnectTarget(message);
    const allowed = connection.admit(target);
    const isTaken = session.interceptor?.takes(target) === true;
    const upstream = isTaken ? null : await connection.dial(target);
    client.write(established);
    connection.awaitHead();
    if (upstream && allowed.unread !== 'never') return pass(connection, upstream, target, allowed, serveHttp);
    const first = await readStart(client);
    connection.headCame();
    decide(connection, { target, allowed, upstream, first, serveHttp });
  } catch (error) {
    refuseSocket(connection, client, refused(error));
  }
}

interface Tunnel {
  target: EgressTarget;
  allowed: EgressAllowed;
  /** Null: it is ended here. */
  upstream: Socket | null;
  first: Start;
  serveHttp: ServeHttp;
}

function decide(connection: EgressConnection, tunnel: Tunnel): void {
  const { target, allowed, upstream, first, serveHttp } = tunnel;
  if (first.kind === 'ended') return connection.destroy();
  const isTls = first.kind !== 'other' && first.kind !== 'http';
  try {
    if (first.kind === 'http') {
      connection.tunnel = { target, upstream };
      return serveHttp(connection);
    }
    checkName(first, target, upstream === null ? { ...allowed, mayHideName: false } : allowed);
    if (upstream) return join(connection.client, upstream);
    connection.session.interceptor!.tunnel({
      target,
      client: connection.client,
      dial: connection.dial,
      report: (reason, text) => connection.session.report(target, reason, text),
      charge: () => connection.session.charge(),
    });
  } catch (error) {
    refuseTunnel(connection, refused(error), isTls);
  }
}

/** What the owner allows to be unread: the host may speak first, so nothing waits for the program. */
function pass(
  connection: EgressConnection,
  upstream: Socket,
  target: EgressTarget,
  allowed: EgressAllowed,
  serveHttp: ServeHttp,
): void {
  const { client } = connection;
  connection.headCame();
  if (allowed.unread === 'any') return join(client, upstream);
  upstream.pipe(client);
  void readStart(client).then((first) => {
    if (first.kind === 'other' || upstream.bytesRead > 0) return void client.pipe(upstream);
    upstream.unpipe(client);
    decide(connection, { target, allowed, upstream, first, serveHttp });
  });
}

function join(client: Socket, upstream: Socket): void {
  client.pipe(upstream).pipe(client);
}

function checkName(first: Start, target: EgressTarget, allowed: EgressAllowed): void {
  const { host } = target;
  if (first.kind !== 'hello') {
    const pieces = first.kind === 'pieces' ? `TLS whose begin came in ${maxPieces} pieces` : null;
    const what = pieces ?? (first.kind === 'other' ? 'neither TLS nor HTTP' : 'TLS that cannot be read');
    throw new EgressRefused('not_tls', `What was sent to ${host} is ${what}.`);
  }
  if (first.serverName === null) {
    if (allowed.mayHideName || parseAddress(host) !== null) return;
    throw new EgressRefused('name_missing', `The TLS connection to ${host} does not name its host (SNI).`);
  }
  if (readHostName(first.serverName) !== host) {
    throw new EgressRefused('name_mismatch', `The TLS connection to ${host} names another host (SNI).`);
  }
  if (first.hidesName && !allowed.mayHideName) {
    throw new EgressRefused(
      'name_hidden',
      `The TLS connection to ${host} hides its name (Encrypted ClientHello).`,
    );
  }
}
