import { setTimeout as delay } from 'node:timers/promises';
import { mintKey } from '../../packages/server/src/services/api-keys.ts';
import { createApiKeyStore } from '../../packages/server/src/store/api-keys.ts';
import type { Database } from '../../packages/server/src/store/database.ts';
import { newId } from '../../packages/server/src/domain/ids.ts';
import { createOrgStore } from '../../packages/server/src/store/orgs.ts';
import { openServiceDatabase } from '../../packages/server/test/support/scenario-world.ts';
import { startChild } from '../lib/children.ts';
import type { Child } from '../lib/children.ts';
import { Client } from '../lib/client.ts';
import { atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { slackBody, type HookLoad, type HookReply } from '../lib/hook-load.ts';
import { median, quantile } from '../lib/stats.ts';
import { openWorld } from '../lib/world.ts';
import type { World } from '../lib/world.ts';

const SECRET = '8f742231b10e8888abcd99yyyzzz85a5';
const SECONDS = 60;
const BURST = 5_000;
const BACKLOG = 100_000;
const SINGLES = 15;

interface Hooks {
  world: World;
  hooks: Child;
  /** The same for mail bombs, at the same time. */
  bomber: Child;
  slackUrl: string;
  db: Database;
}

interface Channel {
  client: Client;
  channelId: string;
  load: Pick<HookLoad, 'url' | 'secret'>;
}

let runs = 0;
const send = (hooks: Child, load: Omit<HookLoad, 'run'>): Promise<HookReply> =>
  hooks.ask<HookReply>({ ...load, run: (runs += 1) } satisfies HookLoad);

async function withHooks(measure: (all: Hooks) => Promise<Figure[]>): Promise<Figure[]> {
  const hooks = startChild('./hook-process.ts', []);
  const bomber = startChild('./hook-process.ts', []);
  const [{ port }] = await Promise.all([hooks.next<{ port: number }>(), bomber.next()]);
  const world = await openWorld({ BERTH_ALLOW_PRIVATE_NETWORKS: '127.0.0.0/8' });
  const db = openServiceDatabase(world.service);
  try {
    await world.warmUp(world.agentId, 100);
    return await measure({ world, hooks, bomber, slackUrl: `http://127.0.0.1:${port}`, db });
  } finally {
    await db.close();
    await world.end();
    await hooks.end();
    await bomber.end();
  }
}

/** What comes in from outside systems: steady, beside mail bombs, and all at once. Each message starts a turn. */
export const inbound = (): Promise<Figure[]> => withHooks(acknowledged);

/** A single event behind another organisation's backlog, and beside mail bombs. */
export const inboundBacklog = (): Promise<Figure[]> => withHooks(behindBacklog);

async function slackChannel({ slackUrl }: Hooks, client: Client, agentId: string): Promise<Channel> {
  const { channel } = await client.json<{ channel: { id: string; webhookUrl: string } }>(
    'POST',
    `/v1/agents/${agentId}/channels`,
    {
      kind: 'slack',
      settings: {},
      credentials: { signingSecret: SECRET, botToken: 'xoxb-1' },
      apiBaseUrl: slackUrl,
    },
  );
  return { client, channelId: channel.id, load: { url: channel.webhookUrl, secret: SECRET } };
}

async function mailChannel({ client, agentId }: World): Promise<Pick<HookLoad, 'url' | 'secret'>> {
  const { channel, secret } = await client.json<{ channel: { webhookUrl: string }; secret: string }>(
    'POST',
    `/v1/agents/${agentId}/channels`,
    {
      kind: 'email',
      settings: { provider: 'mime', address: 'agent@berth.example', sender: 'resend' },
      credentials: { apiKey: 're_1' },
    },
  );
  return { url: channel.webhookUrl, secret };
}

async function otherOrganisation(all: Hooks): Promise<Channel> {
  const orgId = newId();
  await createOrgStore(all.db).insert({ id: orgId, name: 'Other' });
  const { value } = await mintKey(createApiKeyStore(all.db), {
    orgId,
    name: 'bench',
    scope: 'edit',
    binding: 'org-bound',
    agentId: null,
  });
  const client = new Client(all.world.service.url, value);
  const model = 'anthropic/bench';
  const { agent } = await client.json<{ agent: { id: string } }>('POST', '/v1/agents', { name: 'b', model });
  return slackChannel(all, client, agent.id);
}

/** From the delivery of one message to the end of its event, one after the other. */
async function singles({ hooks, db }: Hooks, { channelId, load }: Channel, count: number): Promise<number[]> {
  const tookMs: number[] = [];
  for (let single = 0; single < count; single += 1) {
    const startMs = performance.now();
    await send(hooks, { ...load, kind: 'slack', count: 1, perSecond: null, connections: 1 });
    for (;;) {
      const [row] = await db.sql<[{ open: number }]>`
        select count(*)::int as open from inbound_events
        where channel_id = ${channelId} and state in ('queued', 'processing')`;
      if (row.open === 0) break;
      await delay(5);
    }
    tookMs.push(performance.now() - startMs);
  }
  return tookMs;
}

function told(name: string, reply: HookReply): Figure[] {
  const problems = Object.values(reply.others).reduce((sum, count) => sum + count, reply.refusedMs.length);
  return [
    figure(`${name}, p50`, 'ms', quantile(reply.takenMs, 0.5)),
    figure(`${name}, p99`, 'ms', quantile(reply.takenMs, 0.99), { target: atMost(250) }),
    figure(`${name}, not taken at once`, '', problems, { target: atMost(0) }),
  ];
}

async function acknowledged(all: Hooks): Promise<Figure[]> {
  const { world, hooks, bomber } = all;
  const { load } = await slackChannel(all, world.client, world.agentId);
  const mail = await mailChannel(world);
  const steady = { ...load, kind: 'slack', perSecond: 1_000, connections: 200 } as const;
  // A service that has just started runs its code slowly at first; what is asked for is how it bears this for long.
  await send(hooks, { ...steady, perSecond: 250, count: 1_000 });
  const alone = await send(hooks, { ...steady, count: 1_000 * SECONDS });
  const bombs = send(bomber, { ...mail, kind: 'bomb', count: 75, perSecond: 5, connections: 4 });
  const beside = await send(hooks, { ...steady, count: 15_000 });
  const bombed = await bombs;
  const burst = await send(hooks, {
    ...load,
    kind: 'slack',
    count: BURST,
    perSecond: null,
    connections: 400,
  });
  const lost = Object.values(burst.others).reduce((sum, count) => sum + count, 0);
  const lastMs = Math.max(...burst.takenMs, ...burst.refusedMs);
  return [
    ...told(`Acknowledged at 1000/s for ${SECONDS} s`, alone),
    ...told('The same beside 5 mail bombs a second, 15 s', beside),
    figure('Mail bombs taken of 75', '', bombed.takenMs.length),
    figure(`Burst of ${BURST}: the last is taken or asked to come again`, 'ms', lastMs, {
      target: atMost(2_500),
    }),
    figure('Of these asked to come again', '', burst.refusedMs.length),
    figure('Of these neither', '', lost, { target: atMost(0) }),
  ];
}

async function behindBacklog(all: Hooks): Promise<Figure[]> {
  const { db, bomber, world } = all;
  const slack = await slackChannel(all, world.client, world.agentId);
  const mail = await mailChannel(world);
  const other = await otherOrganisation(all);
  await singles(all, other, 5);
  const aloneMs = median(await singles(all, other, SINGLES));
  const body = slackBody(999, 0);
  const request = { method: 'POST', url: slack.load.url, headers: [['content-type', 'application/json']] };
  await db.sql`
    insert into inbound_events (id, channel_id, org_id, agent_id, kind, state, delivery_key, request, body, place, line,
                                due_at, history, received_at, last_seen_at)
    select gen_random_uuid(), c.id, c.org_id, c.agent_id, 'slack.message', 'queued', 'backlog:' || n, ${db.sql.json(request)},
           convert_to(replace(replace(${body}::text, '.000000', '.9' || lpad(n::text, 6, '0')), 'Ev999x0', 'EvB' || n), 'UTF8'),
           0, 'backlog:' || n, now(), '[]', now(), now()
    from channels c, generate_series(1, ${BACKLOG}::integer) n where c.id = ${slack.channelId}`;
  await world.client.json('GET', `/v1/agents/${world.agentId}`);
  const behind = await singles(all, other, SINGLES);
  const bombs = send(bomber, { ...mail, kind: 'bomb', count: 40, perSecond: 5, connections: 4 });
  const bombed = await singles(all, other, SINGLES);
  await bombs;
  const [{ left }] = await db.sql<[{ left: number }]>`
    select count(*)::int as left from inbound_events where channel_id = ${slack.channelId} and state = 'queued'`;
  const added = (tookMs: number[]) => tookMs.map((ms) => ms - aloneMs);
  const target = atMost(2_000);
  return [
    figure('A single event alone, to the end of its answer', 'ms', aloneMs),
    figure(`What a backlog of ${BACKLOG} of another organisation adds`, 'ms', added(behind)),
    figure('The longest of these', 'ms', Math.max(...added(behind)), { target }),
    figure('The same beside 5 mail bombs a second', 'ms', added(bombed)),
    figure('The longest of these beside mail bombs', 'ms', Math.max(...added(bombed)), { target }),
    figure('Of the backlog still to be begun', '', left),
  ];
}
