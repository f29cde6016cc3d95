import { Agent } from 'node:http';
import type { Duplex } from 'node:stream';
import { connect, type SecureContext, type TLSSocket } from 'node:tls';
import { EgressRefused, type EgressTarget } from '../../domain/egress-policy.ts';
import type { CheckedDial } from '../interceptor.ts';

export interface UpstreamOptions {
  target: EgressTarget;
  dial: CheckedDial;
  /** The authorities by which hosts are believed, and nothing else: a brokered value never goes to an unproven host. */
  trusted: SecureContext;
  /** The host has ended a connection. */
  onEnd: () => void;
}

const HANDSHAKE_MS = 15_000;

/** Connections to the host of one tunnel, one at a time. The first is made at once, while TLS inside is agreed on. */
export class Upstream extends Agent {
  readonly #options: UpstreamOptions;
  readonly #sockets = new Set<TLSSocket>();
  #first: Promise<TLSSocket> | null;

  constructor(options: UpstreamOptions) {
    super({ keepAlive: true, maxSockets: 1 });
    this.#options = options;
    this.#first = this.#connect();
    // Whoever asks for it gets the error; nobody may ask.
    this.#first.catch(() => undefined);
  }

  override createConnection(
    _options: unknown,
    done?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    void this.#handOut(done);
  }

  async #handOut(done?: (error: Error | null, stream: Duplex) => void): Promise<void> {
    const made = this.#first ?? this.#connect();
    this.#first = null;
    const socket = await made.catch((error: Error) => error);
    if (socket instanceof Error) done?.(socket, undefined as never);
    else done?.(null, socket);
  }

  close(): void {
    this.destroy();
    for (const socket of this.#sockets) socket.destroy();
  }

  async #connect(): Promise<TLSSocket> {
    const { target, dial, trusted, onEnd } = this.#options;
    const raw = await dial(target);
    raw.setNoDelay(true);
    const socket = connect({
      socket: raw,
      servername: target.host,
      secureContext: trusted,
      ALPNProtocols: ['http/1.1'],
      minVersion: 'TLSv1.2',
      rejectUnauthorized: true,
    });
    this.#sockets.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      onEnd();
    });
    await secured(socket, target);
    return socket;
  }
}

function secured(socket: TLSSocket, target: EgressTarget): Promise<void> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => fail('timeout', 'did not agree on TLS in time'), HANDSHAKE_MS);
    function fail(reason: 'timeout' | 'upstream_certificate' | 'connect_failed', text: string): void {
      clearTimeout(late);
      socket.destroy();
      reject(new EgressRefused(reason, `${target.host} ${text}.`));
    }
    socket.once('secureConnect', () => {
      clearTimeout(late);
      resolve();
    });
    // Stays for the life of the socket, since one that nobody hears would end the service.
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (isAboutCertificate(socket, error)) {
        fail(
          'upstream_certificate',
          `has a certificate that is not valid for it (${error.code ?? 'unknown'})`,
        );
      } else fail('connect_failed', 'could not be spoken to over TLS');
    });
    socket.once('close', () => fail('connect_failed', 'ended the connection'));
  });
}

function isAboutCertificate(socket: TLSSocket, error: NodeJS.ErrnoException): boolean {
  return Boolean(socket.authorizationError) || error.code === 'ERR_TLS_CERT_ALTNAME_INVALID';
}
