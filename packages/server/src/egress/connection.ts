import type { Socket } from 'node:net';
import { parseAddress } from '../domain/address-ranges.ts';
import { EgressRefused, type EgressAllowed, type EgressTarget } from '../domain/egress-policy.ts';
import { checkLiteral, dialChecked } from './dial.ts';
import { refused, type EgressSession } from './session.ts';

/** One connection from inside, with what was opened for it outside. When either end is gone, so is the other. */
export class EgressConnection {
  readonly session: EgressSession;
  readonly client: Socket;
  /** Of the request or tunnel that is under way. */
  target: EgressTarget | null = null;
  /** Set inside a tunnel that carries plain HTTP: requests may go nowhere else. */
  tunnel: { target: EgressTarget; upstream: Socket | null } | null = null;
  readonly #upstreams = new Set<Socket>();
  readonly #total: NodeJS.Timeout;
  #head: NodeJS.Timeout | null = null;

  constructor(session: EgressSession, client: Socket) {
    const { limits } = session.shared;
    this.session = session;
    this.client = client;
    session.connections.add(this);
    session.shared.open += 1;
    this.#total = setTimeout(() => this.destroy(), limits.totalMs).unref();
    this.awaitHead();
    client.setTimeout(limits.idleMs, () => this.destroy());
    client.on('error', () => this.destroy());
    client.on('close', () => this.destroy());
  }

  /** A request, or the first bytes of a tunnel, must have come in time. */
  awaitHead(): void {
    this.headCame();
    this.#head = setTimeout(() => this.#late(), this.session.shared.limits.headMs).unref();
  }

  #late(): void {
    // A tunnel in which the program waits for the host to speak, or that nobody needed.
    if (this.target) {
      const message = `Nothing was sent to ${this.target.host} in time; TLS and HTTP begin with the program.`;
      this.session.report(this.target, 'not_tls', message);
    }
    this.destroy();
  }

  headCame(): void {
    if (this.#head) clearTimeout(this.#head);
    this.#head = null;
  }

  /** Throws EgressRefused unless the policy, as it is now, lets the target be reached. */
  admit(target: EgressTarget): EgressAllowed {
    this.target = target;
    try {
      return this.session.policy.check(target);
    } catch (error) {
      // No rule would open it, so none is proposed.
      if (refused(error).reason !== 'address_literal') throw error;
      checkLiteral(this.session.shared.dial, target);
      throw error;
    }
  }

  /** CheckedDial: what is opened ends with this connection, and is counted. */
  dial = async (target: EgressTarget): Promise<Socket> => {
    const { shared, owner } = this.session;
    const connect = (address: string, port: number) => this.#connect(address, port);
    const socket = await dialChecked({ ...shared.dial, connect }, target, (address, port) =>
      this.session.policy.deniesAddress(address, port),
    ).catch((error: unknown) => {
      throw refused(error);
    });
    shared.meter.track(owner, target.host, socket);
    socket.on('error', () => this.destroy());
    // The policy may have changed, or the program gone, while the name was looked up.
    try {
      if (this.client.destroyed) throw new EgressRefused('connect_failed', 'The program has gone.');
      this.session.policy.check(target);
    } catch (error) {
      socket.destroy();
      throw error;
    }
    return socket;
  };

  /** Also what is only being connected ends with the program, so that it never has more outside than here. */
  #connect(address: string, port: number): Socket {
    if (this.client.destroyed) throw new EgressRefused('connect_failed', 'The program has gone.');
    const socket = this.session.shared.dial.connect(address, port);
    this.#upstreams.add(socket);
    socket.once('close', () => this.#upstreams.delete(socket));
    return socket;
  }

  report(error: EgressRefused): void {
    this.session.report(this.target, error.reason, error.message);
  }

  checkAgain(): void {
    if (!this.target) return;
    try {
      this.session.policy.check(this.target);
      for (const { remoteAddress } of this.#upstreams) this.#checkAddress(this.target, remoteAddress ?? '');
    } catch (error) {
      this.report(refused(error));
      this.destroy();
    }
  }

  #checkAddress(target: EgressTarget, remoteAddress: string): void {
    const address = parseAddress(remoteAddress);
    if (!address || !this.session.policy.deniesAddress(address, target.port)) return;
    throw new EgressRefused('denied', `${target.host} has an address that this agent may not reach.`);
  }

  destroy(): void {
    if (!this.session.connections.delete(this)) return;
    this.session.shared.open -= 1;
    clearTimeout(this.#total);
    this.headCame();
    this.client.destroy();
    for (const upstream of this.#upstreams) upstream.destroy();
  }
}
