import { createServer, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { createSecureContext, type SecureContext } from 'node:tls';
import { limits } from '../../domain/limits.ts';
import { mayGoOn, readInTurn, refuseExpectation, takeOver } from '../../domain/one-request.ts';
import type { Interceptor } from '../interceptor.ts';
import { exchange, exchangeUpgrade } from './exchange.ts';
import { TunnelLink } from './link.ts';
import { plainHalf } from './plain.ts';
import type { BrokerSession } from './session.ts';

export interface BrokerOptions {
  /** PEM, the authorities by which hosts are believed. */
  trusted: string;
  headMs?: number;
}

export interface Broker {
  interceptor(session: BrokerSession): Interceptor;
  close(): void;
}

/** Ends TLS of the hosts of brokered secrets, for all sandboxes of this node. */
export function createBroker(options: BrokerOptions): Broker {
  // Made when first needed: reading all authorities takes a while and some memory.
  let context: SecureContext | null = null;
  const trusted = () => (context ??= createSecureContext({ ca: options.trusted, minVersion: 'TLSv1.2' }));
  const headMs = options.headMs ?? limits.egressHeadMs;
  const links = new WeakMap<object, TunnelLink>();

  // It never listens: connections of all sandboxes are handed to it. What takes too long the links end themselves.
  const http = createServer({
    insecureHTTPParser: false,
    // A missing Host is refused by us, who count it; Node would answer by itself.
    requireHostHeader: false,
    maxHeaderSize: limits.egressHeadBytes,
    requestTimeout: 0,
    headersTimeout: 0,
    keepAliveTimeout: 0,
    shouldUpgradeCallback: (message) => message.headers.upgrade?.toLowerCase() === 'websocket',
  });
  http.maxHeadersCount = 0;
  const linkOf = (message: IncomingMessage): TunnelLink => links.get(message.socket)!;
  http.on('connection', (socket) => {
    const link = links.get(socket)!;
    readInTurn(socket, { account: link.session.reading, onCut: () => link.charge() });
  });
  http.on('request', (message, response) => {
    if (mayGoOn(message, response)) void exchange(linkOf(message), message, response);
  });
  http.on('checkExpectation', refuseExpectation);
  http.on('upgrade', (message, socket, rest) => {
    if (mayGoOn(message, null))
      void exchangeUpgrade(linkOf(message), message, socket as Socket, takeOver(message.socket, rest));
  });
  http.on('clientError', (_error, socket) => {
    const isOpen = socket.writable && !socket.destroyed;
    if (isOpen) socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
    links.get(socket)?.destroy();
  });

  return {
    interceptor: (session) => ({
      takes: (target) => session.takes(target),
      tunnel(tunnel) {
        const link = new TunnelLink(tunnel, session, { trusted: trusted(), headMs });
        links.set(link.socket, link);
        http.emit('connection', link.socket);
      },
      ...plainHalf(session),
    }),
    close: () => http.close(),
  };
}
