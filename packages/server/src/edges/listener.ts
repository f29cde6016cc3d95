import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { getRequestListener, RequestError } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { DomainError } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { mayGoOn, readInTurn, takeOver } from '../domain/one-request.ts';
import type { App } from './app.ts';
import { ambiguousHead } from './http/ambiguous-head.ts';
import { newHead } from './http/answer.ts';
import { bareAnswer, refuseBroken } from './http/broken-request.ts';
import { endSocket } from './http/end-socket.ts';
import { lingerBeforeClose } from './http/linger.ts';
import { answerHalfClosed } from './http/half-closed.ts';
import { errorBody, errorResponse, presentable } from './http/errors.ts';

/** A part of the service that speaks to the connection itself (git): no body limit, no buffering. */
export interface Mount {
  /** Paths that begin so are its own, e.g. `/git/`. */
  prefix: string;
  /** Answers. What it throws or rejects with becomes an error answer, or a cut connection once it has begun. */
  handle(request: IncomingMessage, response: ServerResponse): void | Promise<void>;
}

/** A part of the service that takes over connections (WebSocket). */
export interface Upgrade {
  /** Whether this request is its own; one that is nobody's is answered as if it asked for no upgrade. */
  matches(request: IncomingMessage): boolean;
  /** Never rejects. */
  handle(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void>;
  /** Ends its connections. */
  close(): void;
}

/** Of `RESPONSE_ALREADY_SENT`. */
const ALREADY_SENT = 'x-hono-already-sent';

export interface Listener {
  /** For `upgrade` handlers and the like. */
  server: Server;
  /** Resolves with the bound port. */
  listen(port: number, host: string): Promise<AddressInfo>;
  /** Takes no new connection, ends idle ones and streams, waits for the others, and after `graceMs` cuts them. */
  close(graceMs: number): Promise<void>;
}

/**
 * The one HTTP listener. A request for an agent's host is the app's, whatever its path; of the others raw mounts by
 * prefix come first, then the app.
 */
export function createListener(
  app: App,
  mounts: Mount[] = [],
  maxConnections?: number,
  upgrades: Upgrade[] = [],
): Listener {
  const appListener = getRequestListener(answerBy(app), {
    errorHandler: (error) => adapterFailed(app, error),
  });
  const { hosts } = app;
  const all = [hosts.upgrade, ...upgrades];
  const findUpgrade = (request: IncomingMessage): Upgrade | undefined =>
    hosts.labelOf(request) === null
      ? upgrades.find((one) => one.matches(request))
      : hosts.upgrade.matches(request)
        ? hosts.upgrade
        : undefined;
  const shouldUpgradeCallback = (request: IncomingMessage) => findUpgrade(request) !== undefined;
  // A missing Host is refused below, in the shape of every other refusal.
  const server = createServer({ shouldUpgradeCallback, requireHostHeader: false }, (request, response) => {
    if (!mayGoOn(request, response)) return;
    lingerBeforeClose(request, response);
    answering(request, response);
    const reason = ambiguousHead(request);
    if (reason !== null) return refuseHead(response, 400, reason);
    // A client of HTTP/1.0 need not name one, as the health checks of some balancers do not; the adapter cannot do without.
    request.headers.host ??= 'localhost';
    if (hosts.labelOf(request) !== null) return void appListener(request, response);
    const mount = mounts.find((one) => request.url?.startsWith(one.prefix));
    if (mount) void serveMount(app, mount, request, response);
    else if (!app.answerKnown(request, response)) void appListener(request, response);
  });
  server.on('connection', (socket: Socket) => readInTurn(socket, {}));
  const { answering, answerOn } = answerHalfClosed(server);
  // The server does not see to them any more; one that opens while it closes would hold it for ever.
  const taken = new Set<Duplex>();
  const take = (socket: Duplex) => {
    taken.add(socket);
    socket.once('close', () => taken.delete(socket));
  };
  // A client gets this long for its head; bodies have a limit of their own (a git push may rightly take long).
  server.headersTimeout = 15_000;
  server.requestTimeout = 3_600_000;
  // Longer than the idle time-out of usual load balancers, so that they never meet a connection just closed.
  server.keepAliveTimeout = 65_000;
  server.on('clientError', (error: Error & { code?: string }, socket: Socket) => {
    // Whatever comes after what could not be read is told once more.
    if (taken.has(socket)) return;
    take(socket);
    refuseBroken(error.code, { socket, answer: answerOn(socket) });
  });
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    if (!mayGoOn(request, response)) return;
    lingerBeforeClose(request, response);
    answering(request, response);
    refuseHead(response, 417, 'The only expectation that is met is 100-continue.');
  });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, begin: Buffer) => {
    if (!mayGoOn(request, null)) return;
    const head = takeOver(request.socket, begin);
    take(socket);
    const reason = ambiguousHead(request);
    if (reason !== null) return endSocket(socket, bareAnswer('400 Bad Request', reason));
    void findUpgrade(request)?.handle(request, socket, head);
  });
  // A client beyond it is turned away; without an end to them nobody could be served any more, nor anything be opened.
  if (maxConnections !== undefined) server.maxConnections = maxConnections;

  return {
    server,
    listen: (port, host) =>
      new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen(port, host, () => {
          server.off('error', reject);
          resolve(server.address() as AddressInfo);
        });
      }),
    async close(graceMs) {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      app.drain();
      for (const upgrade of all) upgrade.close();
      // A connection that was busy just now becomes idle, and would be kept for the client's next request.
      const sweep = setInterval(() => server.closeIdleConnections(), 20);
      const timer = setTimeout(() => {
        server.closeAllConnections();
        for (const socket of taken) socket.destroy();
      }, graceMs);
      await closed;
      clearInterval(sweep);
      clearTimeout(timer);
      app.close();
    },
  };
}

type Fetch = Parameters<typeof getRequestListener>[0];

/** Hono makes another answer of the one to HEAD, and what says of it that it was sent already is not heard there. */
function answerBy(app: App): Fetch {
  const fetch = app.fetch as Fetch;
  return (request, env) => {
    const answer = fetch(request, env);
    return request.method === 'HEAD' ? asSent(answer) : answer;
  };
}

async function asSent(answer: ReturnType<Fetch>): Promise<unknown> {
  const made = await answer;
  return made instanceof Response && made.headers.has(ALREADY_SENT) ? RESPONSE_ALREADY_SENT : made;
}

async function serveMount(
  app: App,
  mount: Mount,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const requestId = newId();
  response.setHeader('X-Request-Id', requestId);
  if (app.edge.draining) response.setHeader('Connection', 'close');
  try {
    await mount.handle(request, response);
  } catch (error) {
    // What is left of a body that was refused amid it would keep the socket from being read, and the answer from being seen.
    request.resume();
    const failure = presentable(error, requestId);
    const answer = errorResponse(failure, newHead(requestId));
    if (answer.status >= 500)
      app.edge.log.error('request failed', { requestId, cause: failure.cause ?? failure });
    else app.edge.log.debug('request', { requestId, status: answer.status, refused: failure.message });
    if (response.headersSent) return void response.destroy();
    for (const [name, value] of answer.headers) response.setHeader(name, value);
    response.writeHead(answer.status).end(JSON.stringify(errorBody(failure)));
  }
}

/** A request that the adapter could not even make a Request of, such as one with a malformed Host header. */
function adapterFailed(app: App, error: unknown): Response {
  const requestId = newId();
  if (error instanceof RequestError) {
    return errorResponse(new DomainError('invalid_request', 'The request is malformed.'), newHead(requestId));
  }
  const failure = presentable(error, requestId);
  app.edge.log.error('request failed', { requestId, cause: failure.cause ?? failure });
  return errorResponse(failure, newHead(requestId));
}

/** The connection ends with it: where its next request would begin is not known for sure. */
function refuseHead(response: ServerResponse, status: number, text: string): void {
  const body = JSON.stringify({ error: text, code: 'invalid_request' });
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    'X-Request-Id': newId(),
    Connection: 'close',
  });
  response.end(body);
}
