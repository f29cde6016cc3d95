import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Route } from './route.ts';

const bucketsSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** A route, or what is counted like one. */
export type Measured = Pick<Route, 'path'> & { method: string };

/** Counts of one route. Held by the route's own closure: no look-up by label on the hot path. */
export class RouteStats {
  readonly method: string;
  readonly path: string;
  readonly byStatus = new Map<number, number>();
  readonly buckets = Array.from({ length: bucketsSeconds.length + 1 }, () => 0);
  sumSeconds = 0;

  constructor(route: Measured) {
    this.method = route.method.toUpperCase();
    this.path = route.path;
  }

  observe(status: number, seconds: number): void {
    this.byStatus.set(status, (this.byStatus.get(status) ?? 0) + 1);
    this.sumSeconds += seconds;
    const index = bucketsSeconds.findIndex((limit) => seconds <= limit);
    this.buckets[index === -1 ? bucketsSeconds.length : index]! += 1;
  }
}

export interface Metrics {
  statsOf(route: Measured): RouteStats;
  /** The whole text in Prometheus' exposition format, version 0.0.4. */
  text(gauges: Record<string, number>): string;
  close(): void;
}

/** A few numbers about the process and its requests, without a library. */
export function createMetrics(): Metrics {
  const routes: RouteStats[] = [];
  // Each look wakes the process: ten a second find a loop that lags, and cost nothing when it is idle.
  const loop = monitorEventLoopDelay({ resolution: 100 });
  loop.enable();
  return {
    statsOf(route) {
      const stats = new RouteStats(route);
      routes.push(stats);
      return stats;
    },
    text(gauges) {
      const lines = [...processLines(loop.percentile(99) / 1e9), ...requestLines(routes)];
      for (const [name, value] of Object.entries(gauges))
        lines.push(`# TYPE ${name} ${name.endsWith('_total') ? 'counter' : 'gauge'}`, `${name} ${value}`);
      loop.reset();
      return `${lines.join('\n')}\n`;
    },
    close: () => loop.disable(),
  };
}

function processLines(loopP99Seconds: number): string[] {
  const cpu = process.cpuUsage();
  return [
    '# HELP process_cpu_seconds_total User and system CPU time of the service.',
    '# TYPE process_cpu_seconds_total counter',
    `process_cpu_seconds_total ${(cpu.user + cpu.system) / 1e6}`,
    '# TYPE process_resident_memory_bytes gauge',
    `process_resident_memory_bytes ${process.memoryUsage.rss()}`,
    '# TYPE process_start_time_seconds gauge',
    `process_start_time_seconds ${((Date.now() - process.uptime() * 1000) / 1000).toFixed(3)}`,
    '# HELP nodejs_eventloop_lag_p99_seconds Since the last reading.',
    '# TYPE nodejs_eventloop_lag_p99_seconds gauge',
    `nodejs_eventloop_lag_p99_seconds ${Number.isFinite(loopP99Seconds) ? loopP99Seconds : 0}`,
  ];
}

function requestLines(routes: RouteStats[]): string[] {
  const seen = routes.filter((stats) => stats.byStatus.size > 0);
  const lines = [
    '# HELP berth_http_requests_total Answered requests by route and status.',
    '# TYPE berth_http_requests_total counter',
  ];
  for (const stats of seen) {
    for (const [status, count] of stats.byStatus) {
      lines.push(`berth_http_requests_total{${labels(stats)},status="${status}"} ${count}`);
    }
  }
  lines.push(
    '# HELP berth_http_request_seconds Time to the answer; for streams, to their beginning.',
    '# TYPE berth_http_request_seconds histogram',
  );
  for (const stats of seen) {
    let sum = 0;
    for (const [index, count] of stats.buckets.entries()) {
      sum += count;
      lines.push(
        `berth_http_request_seconds_bucket{${labels(stats)},le="${bucketsSeconds[index] ?? '+Inf'}"} ${sum}`,
      );
    }
    lines.push(
      `berth_http_request_seconds_sum{${labels(stats)}} ${stats.sumSeconds.toFixed(6)}`,
      `berth_http_request_seconds_count{${labels(stats)}} ${sum}`,
    );
  }
  return lines;
}

const labels = (stats: RouteStats) => `method="${stats.method}",route="${stats.path}"`;
