import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline, Transform, type TransformCallback } from 'node:stream';
import { EgressRefused } from '../../domain/egress-policy.ts';
import { statusOf } from '../answers.ts';
import type { RequestHead } from '../interceptor.ts';
import { readPlainRequest, type PlainRequest } from '../request-head.ts';
import { cleanAnswer } from './answer.ts';
import type { TunnelLink } from './link.ts';
import { PlaceholderWatch } from './placeholders.ts';
import { ScrubStream, type Search } from './scrub.ts';
import { wrongHost } from './session.ts';

/** One request of an intercepted connection and its answer. */
export async function exchange(
  link: TunnelLink,
  message: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const search = link.begin(response);
  response.sendDate = false;
  let isRefused = false;
  const refuse = (error: unknown) => {
    if (!isRefused) refuseResponse(link, response, asRefused(error));
    isRefused = true;
  };
  try {
    const plain = readPlainRequest(message, link.target);
    const head = await fill(link, plain);
    if (response.destroyed) return;
    const outgoing = link.send(head, plain.frame);
    response.once('close', () => {
      if (!response.writableFinished) outgoing.destroy();
    });
    outgoing.on('response', (incoming) => {
      try {
        answer(link, plain, incoming, response, search);
      } catch (error) {
        outgoing.destroy();
        refuse(error);
      }
    });
    outgoing.on('error', (error) => {
      if (!response.destroyed && !isRefused) failed(link, outgoing, error, refuse);
    });
    const watch = new BodyWatch(link);
    watch.on('error', (error) => {
      message.unpipe(watch);
      outgoing.destroy();
      refuse(error);
    });
    message.pipe(watch).pipe(outgoing);
  } catch (error) {
    refuse(error);
  }
}

/** A WebSocket: after the host has switched, bytes pass in both directions; those that come in are scrubbed. */
export async function exchangeUpgrade(
  link: TunnelLink,
  message: IncomingMessage,
  client: Socket,
  rest: Buffer,
): Promise<void> {
  const search = link.begin(client);
  const refuse = (error: unknown) => refuseSocket(link, client, asRefused(error));
  try {
    const plain = readPlainRequest(message, link.target);
    if (plain.frame.kind !== 'none') throw new EgressRefused('bad_request', 'An upgrade has no body.');
    const head = await fill(link, plain);
    if (client.destroyed) return;
    const outgoing = link.send(head, plain.frame, [
      ['Connection', 'Upgrade'],
      ['Upgrade', 'websocket'],
    ]);
    outgoing.on('upgrade', (incoming, socket, first) => {
      const { status, statusText, headers } = cleanAnswer('HEAD', incoming, search);
      writeHead(client, status, statusText, [
        ...headers,
        ['Connection', 'Upgrade'],
        ['Upgrade', 'websocket'],
      ]);
      if (first.length > 0) socket.unshift(first);
      if (rest.length > 0) socket.write(rest);
      socket.once('close', () => link.destroy());
      client.pipe(socket);
      const searched = new ScrubStream(search, true);
      socket.once('close', () => searched.destroy());
      socket.pipe(searched).pipe(client);
    });
    outgoing.on('response', (incoming) => {
      try {
        const { status, statusText, headers, filters } = cleanAnswer(plain.head.method, incoming, search);
        writeHead(client, status, statusText, [...headers, ['Connection', 'close']]);
        pipeline([incoming, ...filters, client], () => link.destroy());
      } catch (error) {
        refuse(error);
      }
    });
    outgoing.on('error', (error) => {
      if (!client.destroyed) failed(link, outgoing, error, refuse);
    });
    outgoing.end();
  } catch (error) {
    refuse(error);
  }
}

/** The head as it goes out, values and all. */
async function fill(link: TunnelLink, plain: PlainRequest): Promise<RequestHead> {
  const { method, path } = plain.head;
  // It would send the values back, and is of no use to anyone.
  if (method === 'TRACE') throw new EgressRefused('bad_request', 'TRACE is not passed on.');
  const { headers, left } = await link.session.fill(link.target, plain.head);
  for (const key of left) reportLeft(link, key, 'the URL');
  return { method, path, headers: readable(headers) };
}

/** Packing, also of a WebSocket's frames, and parts of an answer, of which none would hold a whole value. */
const unsearchable = /^(accept-encoding|sec-websocket-extensions|range|if-range)$/i;

/** The answer must be one that can be searched; a host may ignore Range (RFC 9110, section 14.2), and here it has to. */
function readable(headers: RequestHead['headers']): RequestHead['headers'] {
  const kept = headers.filter(([name]) => !unsearchable.test(name));
  return [...kept, ['Accept-Encoding', 'identity']];
}

function answer(
  link: TunnelLink,
  plain: PlainRequest,
  incoming: IncomingMessage,
  response: ServerResponse,
  search: Search,
): void {
  const { status, statusText, headers, filters } = cleanAnswer(plain.head.method, incoming, search);
  if (response.headersSent || response.destroyed) return void incoming.destroy();
  response.writeHead(status, statusText, headers.flat());
  pipeline([incoming, ...filters, response], (error) => {
    if (error) link.destroy();
  });
}

function failed(
  link: TunnelLink,
  outgoing: ClientRequest,
  error: Error,
  refuse: (error: unknown) => void,
): void {
  // The host closed a connection that it had kept open: the program sees just that, and may try again.
  if (outgoing.reusedSocket) return link.destroy();
  refuse(
    error instanceof EgressRefused
      ? error
      : new EgressRefused('connect_failed', `${link.target.host} gave no answer that could be read.`),
  );
}

/** Passes a body on, and ends it when it holds the placeholder of a secret that is not for this host. */
class BodyWatch extends Transform {
  readonly #link: TunnelLink;
  readonly #watch: PlaceholderWatch;
  readonly #told = new Set<string>();

  constructor(link: TunnelLink) {
    super();
    this.#link = link;
    this.#watch = new PlaceholderWatch(link.session.placeholders);
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    const { session, target } = this.#link;
    const found = this.#watch.push(chunk);
    const [foreign] = session.foreign(found, target);
    if (foreign !== undefined) return done(wrongHost(foreign, target));
    for (const key of found) {
      if (this.#told.has(key)) continue;
      this.#told.add(key);
      reportLeft(this.#link, key, 'the body');
    }
    done(null, chunk);
  }
}

function reportLeft(link: TunnelLink, key: string, place: string): void {
  link.report(
    'placeholder_not_replaced',
    `The placeholder of the secret ${key} stood in ${place} of a request to ${link.target.host}; only header values are replaced.`,
  );
}

/** What else goes wrong while a secret is read is for the log of the service, and must not tell anything inside. */
function asRefused(error: unknown): EgressRefused {
  if (error instanceof EgressRefused) return error;
  return new EgressRefused('connect_failed', 'The request could not be passed on; try again.');
}

function refuseResponse(link: TunnelLink, response: ServerResponse, error: EgressRefused): void {
  link.report(error.reason, error.message);
  if (response.headersSent || response.destroyed) return link.destroy();
  const { status, text } = statusOf(error.reason);
  const body = `${error.message} (${error.reason})\n`;
  response.shouldKeepAlive = false;
  response.writeHead(status, text, headersOf(error, body).flat());
  response.end(body, () => endSoon(link));
}

function refuseSocket(link: TunnelLink, client: Socket, error: EgressRefused): void {
  link.report(error.reason, error.message);
  const { status, text } = statusOf(error.reason);
  const body = `${error.message} (${error.reason})\n`;
  writeHead(client, status, text, headersOf(error, body));
  client.end(body, () => endSoon(link));
}

function headersOf(error: EgressRefused, body: string): [string, string][] {
  return [
    ['X-Berth-Egress-Error', error.reason],
    ['Content-Type', 'text/plain; charset=utf-8'],
    ['Content-Length', String(Buffer.byteLength(body))],
    ['Connection', 'close'],
  ];
}

function writeHead(client: Socket, status: number, text: string, headers: [string, string][]): void {
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  client.write(`HTTP/1.1 ${status} ${text}\r\n${lines}\r\n`, 'latin1');
}

const LINGER_MS = 500;

/** A program that sends on without reading does not keep its connection, and one that reads has time to. */
function endSoon(link: TunnelLink): void {
  setTimeout(() => link.destroy(), LINGER_MS).unref();
}
