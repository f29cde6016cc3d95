import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { signSlack, slackSecret } from '../channels/fixtures/slack.ts';
import { threadMessage } from '../channels/world.ts';
import { openServiceDatabase } from './scenario-world.ts';
import { startService, type Service } from './service.ts';
import { slackApi } from './slack-api.ts';
import { until } from './until.ts';

export interface Delivery {
  /** Null: nothing was heard. */
  status: number | null;
  retryAfter: string | null;
}

interface Counts {
  turns: number;
  runs: number;
  unsettled: number;
  /** Attempts at the events that ended with their process. */
  cutOffs: number;
}

export interface SlackWorld {
  service: Service;
  channelId: string;
  slack: Awaited<ReturnType<typeof slackApi>>;
  /** Delivers the message that begins the thread; `retry` null: without the headers of a retry. */
  deliver(thread: string, retry: number | null): Promise<Delivery>;
  /** Delivers it until it is taken, as Slack does. */
  deliverUntilTaken(thread: string, retry: number | null): Promise<void>;
  /** How many of the channel's messages have a turn of their own, and how many turns the agent had. */
  counts(): Promise<Counts>;
  /** Waits until every event is settled. */
  settled(deadlineMs: number): Promise<void>;
  close(): Promise<void>;
}

export interface SlackWorldOptions {
  env?: Record<string, string>;
  streaming?: boolean;
  /** What is said in a thread. */
  text?: (thread: string) => string;
}

/** A service with a channel whose Slack is a stand-in: it keeps answers, and knows which it has when it is asked. */
export async function slackWorld(options: SlackWorldOptions = {}): Promise<SlackWorld> {
  const { env = {}, streaming = false, text = (thread) => `say ${thread}` } = options;
  const slack = await slackApi();
  const service = await startService({
    env: {
      BERTH_ALLOW_PRIVATE_NETWORKS: '127.0.0.0/8',
      BERTH_LEASE_SECONDS: '2',
      BERTH_LOG_LEVEL: 'warn',
      ...env,
    },
  });
  const sockets = new Agent({ keepAlive: true, maxSockets: 128 });

  async function make(): Promise<{ agentId: string; channelId: string }> {
    const { agent } = (await service.api('POST', '/v1/agents', { name: 'Support' })).body;
    const { channel } = (
      await service.api('POST', `/v1/agents/${agent.id}/channels`, {
        kind: 'slack',
        credentials: { signingSecret: slackSecret, botToken: 'xoxb-1' },
        settings: { streaming },
        apiBaseUrl: slack.url,
      })
    ).body;
    return { agentId: agent.id, channelId: channel.id };
  }
  const { agentId, channelId } = await make();

  async function query<T>(ask: (db: ReturnType<typeof openServiceDatabase>) => Promise<T>): Promise<T> {
    const db = openServiceDatabase(service);
    try {
      return await ask(db);
    } finally {
      await db.close();
    }
  }

  const world: SlackWorld = {
    service,
    channelId,
    slack,
    deliver(thread, retry) {
      const message = threadMessage(thread, thread, text(thread));
      const headers = {
        'content-type': 'application/json',
        ...(retry === null
          ? {}
          : { 'x-slack-retry-num': String(retry), 'x-slack-retry-reason': 'http_timeout' }),
        ...signSlack(message, Date.now()),
      };
      return new Promise((resolve) => {
        const sent = request(
          `${service.url}/api/webhooks/slack/${channelId}`,
          { method: 'POST', headers, agent: sockets },
          (response) => {
            response.resume();
            response.on('close', () => {
              const isWhole = response.complete;
              const retryAfter = response.headers['retry-after'] ?? null;
              resolve({ status: isWhole ? response.statusCode! : null, retryAfter });
            });
          },
        );
        sent.on('error', () => resolve({ status: null, retryAfter: null }));
        sent.end(message.body);
      });
    },
    async deliverUntilTaken(thread, retry) {
      for (let attempt = retry; ; attempt = Math.min((attempt ?? 0) + 1, 3)) {
        const { status, retryAfter } = await world.deliver(thread, attempt);
        if (status === 200) return;
        if (status !== null && (status !== 503 || retryAfter === null)) {
          throw new Error(`A delivery was answered with ${status}.`);
        }
        await delay(200);
      }
    },
    counts: () =>
      query(async (db) => {
        const [row] = await db.sql<[Counts]>`
          select count(distinct run_id)::int as turns,
            count(*) filter (where state in ('queued', 'processing'))::int as unsettled,
            coalesce(sum(cut_offs), 0)::int as "cutOffs",
            (select count(*)::int from runs where agent_id = ${agentId}) as runs
          from inbound_events where channel_id = ${channelId}`;
        return row;
      }),
    async settled(deadlineMs) {
      const db = openServiceDatabase(service);
      try {
        await until(
          'every event is settled',
          async () => {
            const [row] = await db.sql<[{ open: number }]>`
              select count(*)::int as open from inbound_events where state in ('queued', 'processing')`;
            return row.open === 0;
          },
          deadlineMs,
        );
      } finally {
        await db.close();
      }
    },
    async close() {
      sockets.destroy();
      await service.end();
      await slack.close();
    },
  };
  return world;
}

export interface StormReport {
  messages: number;
  deliveries: number;
  turns: number;
  runs: number;
  answers: number;
  twice: number;
  seconds: number;
}

async function report(world: SlackWorld, threads: string[], deliveries: number, startMs: number) {
  const { turns, runs } = await world.counts();
  const answered = threads.map((thread) => world.slack.in(thread).length);
  return {
    messages: threads.length,
    deliveries,
    turns,
    runs,
    answers: answered.reduce((sum, count) => sum + count, 0),
    twice: answered.filter((count) => count > 1).length,
    seconds: Math.round((performance.now() - startMs) / 100) / 10,
  } satisfies StormReport;
}

/** Every message ten times at once, as when Slack hears nothing: one of them is no retry. */
export async function storm(world: SlackWorld, threads: string[], settleMs: number): Promise<StormReport> {
  const startMs = performance.now();
  const copies = threads.flatMap((thread) =>
    Array.from({ length: 10 }, (_, copy) => ({ thread, retry: copy === 0 ? null : Math.min(copy, 3) })),
  );
  await Promise.all(copies.map(({ thread, retry }) => world.deliverUntilTaken(thread, retry)));
  await world.settled(settleMs);
  return report(world, threads, copies.length, startMs);
}

export interface KillReport extends StormReport {
  /** Told with 200 before a kill; and which of these were answered without another delivery. */
  acknowledged: number;
  acknowledgedAnswered: number;
  kills: number;
}

/**
 * Delivers each message once, and kills the service while they come in, at evenly spread moments. What was acknowledged
 * has to be answered without another delivery; then Slack delivers again what was not.
 */
export async function killAmidDeliveries(
  world: SlackWorld,
  threads: string[],
  kills: number,
  settleMs: number,
): Promise<KillReport> {
  const startMs = performance.now();
  const acknowledged: string[] = [];
  const unheard: string[] = [];
  let deliveries = 0;
  for (let kill = 0; kill < kills; kill += 1) {
    const part = threads.filter((_, index) => index % kills === kill);
    let told = 0;
    const reached = Promise.withResolvers<void>();
    // A few at a time, so that the kill comes while some are under way and others still to come.
    const left = part.values();
    const delivered = Promise.all(
      Array.from({ length: 16 }, async () => {
        for (const thread of left) {
          deliveries += 1;
          const { status } = await world.deliver(thread, null);
          (status === 200 ? acknowledged : unheard).push(thread);
          told += 1;
          if (told >= part.length / 2) reached.resolve();
        }
      }),
    );
    await reached.promise;
    await world.service.kill9();
    await delivered;
    await world.service.restart();
  }
  await world.settled(settleMs);
  const answeredAlone = acknowledged.filter((thread) => world.slack.in(thread).length > 0).length;
  await Promise.all(unheard.map((thread) => world.deliverUntilTaken(thread, 1)));
  await world.settled(settleMs);
  return {
    ...(await report(world, threads, deliveries + unheard.length, startMs)),
    acknowledged: acknowledged.length,
    acknowledgedAnswered: answeredAlone,
    kills,
  };
}
