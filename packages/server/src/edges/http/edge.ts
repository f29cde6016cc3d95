import type { Flight } from '../../domain/flight.ts';
import type { Log } from '../../domain/log.ts';
import type { Services } from '../../services/api.ts';
import type { Metrics } from './metrics.ts';
import type { Proxies } from './forwarded.ts';
import type { Addresses } from './route.ts';
import type { Streams } from './stream.ts';

/** What all routes of one app share. */
export interface Edge {
  services: Services;
  addresses: Addresses;
  log: Log;
  metrics: Metrics;
  streams: Streams;
  proxies: Proxies;
  /** Bodies that are read or worked on. */
  flight: Flight;
  /** While true, answers ask clients to close their connection. */
  draining: boolean;
}
