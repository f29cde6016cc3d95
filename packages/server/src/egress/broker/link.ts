import type { EventEmitter } from 'node:events';
import { request, type ClientRequest } from 'node:http';
import { TLSSocket, type SecureContext } from 'node:tls';
import type { EgressReason, EgressTarget } from '../../domain/egress-policy.ts';
import { limits } from '../../domain/limits.ts';
import { paceAnswer } from '../../domain/paced-answers.ts';
import type { InterceptedTunnel, RequestHead } from '../interceptor.ts';
import type { BodyFrame } from '../request-head.ts';
import type { Search } from './scrub.ts';
import type { BrokerSession } from './session.ts';
import { Upstream } from './upstream.ts';

export interface LinkOptions {
  trusted: SecureContext;
  /** From its begin, or the end of the last answer, until the next head has come whole. */
  headMs: number;
}

/** One intercepted connection: TLS to the program inside, and TLS to the host. When either ends, so does the other. */
export class TunnelLink {
  readonly target: EgressTarget;
  readonly session: BrokerSession;
  readonly socket: TLSSocket;
  readonly #tunnel: InterceptedTunnel;
  readonly #upstream: Upstream;
  readonly #headMs: number;
  #exchanges = 0;
  #head: NodeJS.Timeout | undefined;

  constructor(tunnel: InterceptedTunnel, session: BrokerSession, { trusted, headMs }: LinkOptions) {
    const { client, target, dial } = tunnel;
    this.target = target;
    this.session = session;
    this.#tunnel = tunnel;
    this.#headMs = headMs;
    client.setNoDelay(true);
    this.socket = new TLSSocket(client, {
      isServer: true,
      secureContext: session.authority.contextFor(target.host),
      ALPNProtocols: ['http/1.1'],
    });
    this.socket.on('error', () => this.destroy());
    this.socket.on('close', () => this.destroy());
    this.#upstream = new Upstream({ target, dial, trusted, onEnd: () => this.#hostEnded() });
    this.#awaitHead();
  }

  /** What the answer is searched for until `exchange` closes. */
  begin(exchange: EventEmitter): Search {
    clearTimeout(this.#head);
    this.#exchanges += 1;
    const { search, end } = this.session.search(this.target);
    exchange.once('close', () => {
      end();
      this.#exchanges -= 1;
      if (this.#exchanges === 0) this.#awaitHead();
    });
    return search;
  }

  report(reason: EgressReason, message: string): void {
    this.#tunnel.report(reason, message);
  }

  charge(): void {
    this.#tunnel.charge();
  }

  /** Headers without Host, framing and those of a connection: they are written here. */
  send(head: RequestHead, frame: BodyFrame, more: RequestHead['headers'] = []): ClientRequest {
    const { host, port } = this.target;
    const headers: RequestHead['headers'] = [
      ['Host', port === 443 ? host : `${host}:${port}`],
      ...head.headers,
      ...framing(head.method, frame),
      ...more,
    ];
    const sent = request({
      agent: this.#upstream,
      host,
      port,
      method: head.method,
      path: head.path,
      headers: headers.flat(),
      setHost: false,
      insecureHTTPParser: false,
      maxHeaderSize: limits.egressHeadBytes,
    });
    paceAnswer(sent, { account: this.session.reading, isOfNode: true });
    return sent;
  }

  destroy(): void {
    clearTimeout(this.#head);
    this.#upstream.close();
    this.socket.destroy();
    this.#tunnel.client.destroy();
  }

  /** As if the program spoke to the host itself: it sees the end of the connection, and knows what to do. */
  #hostEnded(): void {
    if (this.#exchanges === 0) this.destroy();
  }

  #awaitHead(): void {
    clearTimeout(this.#head);
    this.#head = setTimeout(() => this.destroy(), this.#headMs).unref();
  }
}

function framing(method: string, frame: BodyFrame): RequestHead['headers'] {
  switch (frame.kind) {
    case 'chunked':
      return [['Transfer-Encoding', 'chunked']];
    case 'length':
      return [['Content-Length', String(frame.bytes)]];
    case 'none':
      // Otherwise the client of Node would announce a body in pieces for these.
      return /^(GET|HEAD|DELETE|OPTIONS)$/.test(method) ? [] : [['Content-Length', '0']];
  }
}
