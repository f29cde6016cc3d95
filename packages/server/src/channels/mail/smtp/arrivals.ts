import { limits } from '../../../domain/limits.ts';

interface Host {
  connections: number;
  /** The moment at which its whole allowance is there again. */
  fullAtMs: number;
}

const maxHosts = 20_000;

/** What each remote address may have: connections at once, and mails in a minute. */
export function createArrivals(now: () => number = Date.now) {
  const hosts = new Map<string, Host>();
  const open = new Map<string, string>();

  function hostOf(address: string): Host {
    const known = hosts.get(address);
    if (known) return known;
    if (hosts.size >= maxHosts) {
      for (const [key, host] of hosts)
        if (host.connections === 0 && host.fullAtMs <= now()) hosts.delete(key);
    }
    const host = { connections: 0, fullAtMs: 0 };
    hosts.set(address, host);
    return host;
  }

  return {
    /** False: it has too many. */
    open(session: string, address: string): boolean {
      const host = hostOf(address);
      if (host.connections >= limits.smtpConnectionsPerAddress) return false;
      host.connections += 1;
      open.set(session, address);
      return true;
    },
    close(session: string): void {
      const address = open.get(session);
      if (address === undefined) return;
      open.delete(session);
      hostOf(address).connections -= 1;
    },
    /** False: it has sent too many in the last minute. */
    takeMail(address: string): boolean {
      const host = hostOf(address);
      const eachMs = 60_000 / limits.smtpMailsPerMinute;
      const fullAtMs = Math.max(host.fullAtMs, now()) + eachMs;
      if (fullAtMs - now() > 60_000 + 0.001) return false;
      host.fullAtMs = fullAtMs;
      return true;
    },
  };
}
