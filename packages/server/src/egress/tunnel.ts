import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { parseAddress } from '../domain/address-ranges.ts';
import { EgressRefused, type EgressAllowed, type EgressTarget } from '../domain/egress-policy.ts';
import { readHostName } from '../domain/egress-rules.ts';
import { limits } from '../domain/limits.ts';
import { refuseSocket, refuseTunnel } from './answers.ts';
import { readFirstBytes, type FirstBytes } from './client-hello.ts';
import type { EgressConnection } from './connection.ts';
import { readConnectTarget } from './request-head.ts';
import { refused } from './session.ts';

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

function checkName(first: FirstBytes, target: EgressTarget, allowed: EgressAllowed): void {
  const { host } = target;
  if (first.kind !== 'hello') {
    const what = first.kind === 'other' ? 'neither TLS nor HTTP' : 'TLS that cannot be read';
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

type Start = FirstBytes | { kind: 'http' } | { kind: 'ended' };

/** Reads until it is clear what the bytes are, and puts them back; the socket is paused then. */
function readStart(client: Socket): Promise<Start> {
  return new Promise((resolve) => {
    let bytes = Buffer.alloc(0);
    const onData = (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      const start = classify(bytes);
      if (start.kind !== 'more') end(start);
    };
    const onEnd = () => end(bytes.length > 0 ? { kind: 'other' } : { kind: 'ended' });
    function end(start: Start): void {
      client.pause();
      client.off('data', onData).off('end', onEnd).off('close', onEnd);
      if (bytes.length > 0 && !client.readableEnded) client.unshift(bytes);
      resolve(start);
    }
    client.on('data', onData).on('end', onEnd).on('close', onEnd);
    client.resume();
  });
}

const methods = /^(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|CONNECT|TRACE|PROPFIND|REPORT|MKCOL) /;
/** A request line (RFC 9112, section 3) of any other method, and what can still become one. */
const requestLine = /^[A-Z-]+ .* HTTP\/\d/;
const unfinishedLine = /^[A-Z-]+( [^\p{Cc}]*)?$/u;

/** What a server might take for HTTP is HTTP: then its parser decides, and what it cannot read does not go out. */
function classify(bytes: Buffer): Start {
  const first = readFirstBytes(bytes);
  if (first.kind !== 'other') return first;
  const isLong = bytes.length >= limits.egressHeadBytes;
  // Servers skip empty lines before a request (RFC 9112, section 2.2).
  const text = bytes.toString('latin1').replace(/^[\r\n]+/, '');
  if (methods.test(text)) return { kind: 'http' };
  if (text === '') return { kind: isLong ? 'http' : 'more' };
  const [line = ''] = text.split(/[\r\n]/, 1);
  if (line.length < text.length || isLong) return { kind: requestLine.test(line) ? 'http' : 'other' };
  return { kind: unfinishedLine.test(line) ? 'more' : 'other' };
}
