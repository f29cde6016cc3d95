import type { IncomingMessage } from 'node:http';
import { Hono } from 'hono';
import type { Edge } from '../http/edge.ts';
import type { Env } from '../http/request.ts';
import { header } from '../http/request.ts';
import type { Upgrade } from '../listener.ts';
import type { HostMount } from './host-edge.ts';
import { createHostNames } from './host-names.ts';
import { serveHost } from './serve-host.ts';
import { hostUpgrades } from './upgrade-host.ts';

export interface Hosts {
  /** What stands before the app domain in the host of a request; null: the request is for the service itself. */
  labelOf(incoming: IncomingMessage): string | null;
  labelOfHost(host: string | undefined): string | null;
  fetch: Hono<Env>['fetch'];
  upgrade: Upgrade;
}

/** The hosts of agents, beside the service's own. */
export function createHosts(edge: Edge, mounts: HostMount[]): Hosts {
  const labelOfHost = createHostNames(edge.addresses);
  const labelOf = (incoming: IncomingMessage) => labelOfHost(edge.proxies.host(incoming));
  const table = mounts.map((mount) => ({
    mount,
    stats: edge.metrics.statsOf({ method: 'all', path: `agent host: ${mount.name}` }),
  }));
  const hono = new Hono<Env>();
  hono.all('*', (c) => {
    const incoming = c.env?.incoming;
    const label = incoming ? labelOf(incoming) : labelOfHost(header(c, 'host'));
    return serveHost(c, label ?? '', table, edge);
  });
  return { labelOf, labelOfHost, fetch: hono.fetch, upgrade: hostUpgrades(edge, mounts, labelOf) };
}
