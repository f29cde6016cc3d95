import { connect, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import {
  carriedIpv4,
  contains,
  isPublicAddress,
  parseAddress,
  type Address,
  type Network,
} from '../domain/address-ranges.ts';
import { bracketed, EgressRefused, type EgressTarget } from '../domain/egress-policy.ts';
import type { ResolveName } from './resolver.ts';

export interface DialOptions {
  resolve: ResolveName;
  /** Ranges that are reached although they are not public (BERTH_ALLOW_PRIVATE_NETWORKS). */
  allow: readonly Network[];
  connect: ConnectAddress;
}

/** Begins a TCP connection to an address that was checked. */
export type ConnectAddress = (address: string, port: number) => Socket;

export const connectAddress: ConnectAddress = (host, port) =>
  connect({ host, port, noDelay: true, allowHalfOpen: true, autoSelectFamily: false });

/** Asked for each address that a target has, beside what is never reached. */
export type DeniesAddress = (address: Address, port: number) => boolean;

const attemptMs = 5_000;
const maxAttempts = 4;
const ownAddressesMs = 5_000;

/**
 * Opens a TCP connection to a checked address of the target: the name is resolved once, and all of its addresses must
 * be allowed, so that no second answer of a name server counts. Rejects with EgressRefused.
 */
export async function dialChecked(
  options: DialOptions,
  target: EgressTarget,
  denies: DeniesAddress,
): Promise<Socket> {
  const name = `${bracketed(target.host)}:${target.port}`;
  const isLiteral = parseAddress(target.host) !== null;
  const addresses = isLiteral ? [target.host] : await options.resolve(target.host);
  if (addresses.length === 0)
    throw new EgressRefused('name_not_found', `The name ${target.host} cannot be found.`);
  for (const text of addresses) {
    const address = parseAddress(text);
    if (!address || !isReachable(address, options.allow)) throw notPublic(target);
    const carried = carriedIpv4(address);
    if (denies(address, target.port) || (carried && denies(carried, target.port))) {
      throw new EgressRefused('denied', `${name} has an address that this agent may not reach.`);
    }
  }
  for (const address of addresses.slice(0, maxAttempts)) {
    const socket = await attempt(options.connect(address, target.port));
    if (socket) return socket;
  }
  throw new EgressRefused('connect_failed', `${name} does not take a connection.`);
}

/** Throws EgressRefused for an address that is never reached, whatever is listed. */
export function checkLiteral(options: DialOptions, target: EgressTarget): void {
  const address = parseAddress(target.host);
  if (address && !isReachable(address, options.allow)) throw notPublic(target);
}

function notPublic({ host, port }: EgressTarget): EgressRefused {
  const name = `${bracketed(host)}:${port}`;
  return new EgressRefused(
    'private_address',
    `${name} is on a private or reserved network, which no sandbox reaches.`,
  );
}

function isReachable(address: Address, allow: readonly Network[]): boolean {
  if (allow.some((network) => contains(network, address))) return true;
  const carried = carriedIpv4(address);
  if (carried) return isReachable(carried, allow);
  return isPublicAddress(address) && !ownAddresses().has(`${address.version}/${address.value}`);
}

let own = new Set<string>();
let ownReadAt = 0;

/** Of this host: its own services listen on its public addresses too. */
function ownAddresses(): Set<string> {
  if (Date.now() - ownReadAt > ownAddressesMs) {
    ownReadAt = Date.now();
    const found = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    own = new Set(
      found
        .map(({ address }) => parseAddress(address))
        .map((parsed) => `${parsed?.version}/${parsed?.value}`),
    );
  }
  return own;
}

function attempt(socket: Socket): Promise<Socket | null> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => end(null), attemptMs);
    function end(result: Socket | null): void {
      clearTimeout(timer);
      socket.off('connect', connected);
      socket.off('error', failed);
      socket.off('close', failed);
      if (!result) {
        socket.on('error', () => undefined);
        socket.destroy();
      }
      resolve(result);
    }
    const connected = () => end(socket);
    const failed = () => end(null);
    socket.once('connect', connected);
    socket.once('error', failed);
    // Whoever dialled may have given it up.
    socket.once('close', failed);
  });
}
