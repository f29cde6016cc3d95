import assert from 'node:assert/strict';
import { Agent, request as httpRequest } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import {
  hookUrl,
  kindOf,
  replaced,
  signed,
  type Fixture,
  type Unsigned,
} from '../channels/fixtures/fixture.ts';
import { dialogue } from '../channels/smtp-dialogue.ts';
import { serviceUrl, serviceKeys, strangerKeys, teamsClaims, token } from '../channels/fixtures/tokens.ts';
import type { InboundRequest } from '../../src/domain/ports/channel.ts';
import type { Database } from '../../src/store/database.ts';
import { openServiceDatabase } from './scenario-world.ts';
import { numbered, providerApi, type Answered, type ProviderApi } from './provider-apis.ts';
import { providerStandIn, type ProviderCall } from './provider-stand-in.ts';
import { startService, type Service } from './service.ts';
import { until } from './until.ts';

/** A kind of channel, and a stand-in of its provider. */
export interface KindSide {
  /** The recorded shapes, as they are sent to a channel whose provider is the stand-in. */
  fixture: Fixture;
  api: ProviderApi;
  url: string;
  /** What the provider was asked to send, each once. */
  answers: Answered[];
  /** How often the service sent again what makes no second one. */
  repeats: number;
  /** Calls that no such provider knows, or whose credentials are wrong. */
  strange: ProviderCall[];
  calls: ProviderCall[];
  /** Of the answers to the message with this id. */
  answersTo(id: string): Answered[];
  /** The next answers that it gets, counted from now: told of each; true: the service hears nothing of it. */
  onAnswer(told: ((count: number) => boolean) | null): void;
  close(): Promise<void>;
}

export async function kindSide(recorded: Fixture): Promise<KindSide> {
  const api = providerApi(recorded);
  const answers: Answered[] = [];
  const strange: ProviderCall[] = [];
  let told: ((count: number) => boolean) | null = null;
  let count = 0;
  const server = await providerStandIn((call) => {
    const sent = api.sends(call);
    if (sent === null) {
      const said = api.asked?.(call, answers, server.url) ?? null;
      if (said === null) strange.push(call);
      return said ?? { status: 404, body: {} };
    }
    const isRepeat = sent.once !== undefined && answers.some(({ once }) => once === sent.once);
    if (isRepeat) side.repeats += 1;
    else answers.push(sent);
    if (told?.((count += 1))) return 'silence';
    return (isRepeat ? api.takenBefore : undefined) ?? api.taken(answers.length, sent);
  });
  const side: KindSide = {
    fixture: sentTo(recorded, server.url),
    api,
    url: server.url,
    answers,
    repeats: 0,
    strange,
    calls: server.calls,
    answersTo: (id) => answers.filter(({ to }) => to === api.to(id)),
    onAnswer(next) {
      told = next;
      count = 0;
    },
    close: server.close,
  };
  return side;
}

/** Its requests, as they name the stand-in where they name the provider, and URLs as their senders see them. */
function sentTo(fixture: Fixture, url: string): Fixture {
  const amazon = 'https://sns.eu-west-1.amazonaws.com';
  switch (fixture.title) {
    case 'twilio':
      return { ...fixture, settings: { ...fixture.settings, publicUrl: hookUrl } };
    case 'googlechat':
      return { ...fixture, settings: { ...fixture.settings, audienceUrl: hookUrl } };
    case 'teams': {
      const emea = `${url}/emea/`;
      return {
        ...fixture,
        signBody: (request) => replaced(request, serviceUrl, emea),
        sign(_request, atMs, secret) {
          const key = secret === undefined ? serviceKeys.privateKey : strangerKeys.privateKey;
          const claims = { ...teamsClaims(atMs), serviceurl: emea };
          return { Authorization: `Bearer ${token(claims, key)}` };
        },
      };
    }
    case 'email, SES over SNS':
      return {
        ...fixture,
        signBody: (request, atMs, secret) => fixture.signBody!(replaced(request, amazon, url), atMs, secret),
      };
    default:
      return fixture.kind === 'generic'
        ? { ...fixture, settings: { ...fixture.settings, replyUrl: `${url}/answers` } }
        : fixture;
  }
}

export interface Heard {
  /** Null: nothing was heard. */
  status: number | null;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  /** Of an error. */
  code: string | null;
}

/** What became of a delivery. */
export interface Stored {
  id: string;
  kind: string;
  state: string;
  reason: string | null;
  copies: number;
  runId: string | null;
}

export interface KindWorld {
  service: Service;
  db: () => Database;
  agent(name: string): Promise<string>;
  /** A channel of such an agent; its id. `settings` win over those of the fixture. */
  channel(agentId: string, side: KindSide, settings?: Fixture['settings']): Promise<string>;
  /** Signs it now and delivers it. */
  deliver(side: KindSide, channelId: string, unsigned: Unsigned): Promise<Heard>;
  send(side: KindSide, channelId: string, request: InboundRequest): Promise<Heard>;
  /** Mails over one connection to the service's own listener; what it says at the end of each. */
  sendMails(to: string, mails: string[]): Promise<string[]>;
  /** As a provider that tries again until it is taken. */
  deliverUntilTaken(side: KindSide, channelId: string, unsigned: Unsigned): Promise<void>;
  /** The events of a channel, the oldest first. */
  stored(channelId: string): Promise<Stored[]>;
  /** The same, when nothing is to be done with any of them. */
  settled(channelIds: string[], deadlineMs?: number): Promise<void>;
  restart(): Promise<void>;
  close(): Promise<void>;
}

export async function kindWorld(): Promise<KindWorld> {
  const service = await startService({
    env: {
      BERTH_ALLOW_PRIVATE_NETWORKS: '127.0.0.0/8',
      BERTH_LEASE_SECONDS: '2',
      BERTH_RATE_LIMIT: '100000/60',
      BERTH_SMTP_PORT: '0',
    },
  });
  const sockets = new Agent({ keepAlive: true, maxSockets: 64 });
  let db = openServiceDatabase(service);

  async function made(path: string, body: unknown): Promise<Record<string, { id: string }>> {
    const reply = await service.api('POST', path, body);
    assert.equal(reply.status, 201, reply.text);
    return reply.body;
  }

  const world: KindWorld = {
    service,
    db: () => db,
    agent: async (name) => (await made('/v1/agents', { name }))['agent']!.id,
    async channel(agentId, { fixture, url }, settings = {}) {
      const { kind, credentials } = fixture;
      const input = { kind, credentials, settings: { ...fixture.settings, ...settings } };
      const at = kind === 'generic' ? {} : { apiBaseUrl: url };
      return (await made(`/v1/agents/${agentId}/channels`, { ...input, ...at }))['channel']!.id;
    },
    deliver: (side, channelId, unsigned) =>
      world.send(side, channelId, signed(side.fixture, unsigned, Date.now())),
    send({ fixture }, channelId, { method, url, headers, body }) {
      const path = `/api/webhooks/${fixture.kind}/${channelId}${new URL(url).search}`;
      return new Promise((resolve) => {
        const nothing: Heard = { status: null, headers: {}, text: '', code: null };
        const sent = httpRequest(
          `${service.url}${path}`,
          { method, headers: Object.fromEntries(headers), agent: sockets },
          (response) => {
            let text = '';
            response.setEncoding('utf8').on('data', (piece: string) => (text += piece));
            response.on('error', () => undefined);
            response.on('close', () => {
              if (!response.complete) return resolve(nothing);
              resolve({ status: response.statusCode!, headers: response.headers, text, code: codeIn(text) });
            });
          },
        );
        sent.on('error', () => resolve(nothing));
        // A declared length without a body: what is too large is refused before it comes.
        if (headers.has('content-length')) sent.flushHeaders();
        else sent.end(body);
      });
    },
    async sendMails(to, mails) {
      // The service tells the port that it has got, with each start another one.
      const port = [...service.logs().matchAll(/Mail is taken over SMTP\..*?"port":\s*(\d+)/g)].at(-1)?.[1];
      const peer = await dialogue(Number(port));
      const heard: string[] = [];
      await peer.hello();
      for (const mail of mails) {
        await peer.say('MAIL FROM:<ada@example.com>');
        const taken = await peer.say(`RCPT TO:<${to}>`);
        if (!taken.startsWith('250')) {
          heard.push(taken);
          await peer.say('RSET');
          continue;
        }
        await peer.say('DATA');
        peer.write(mail);
        heard.push(await peer.say('.'));
      }
      await peer.say('QUIT');
      peer.close();
      return heard;
    },
    async deliverUntilTaken(side, channelId, unsigned) {
      for (;;) {
        const { status, headers, text } = await world.deliver(side, channelId, unsigned);
        if (status !== null && status < 300) return;
        const isBusy = status === 503 || status === 429;
        if (status !== null && !(isBusy && headers['retry-after'] !== undefined))
          throw new Error(`${side.fixture.title}: a delivery was answered with ${status}: ${text}`);
        await delay(200);
      }
    },
    async stored(channelId) {
      const rows = await db.sql<Stored[]>`
        select id, kind, state, reason, retry_count as copies, run_id as "runId"
        from inbound_events where channel_id = ${channelId} order by id`;
      return [...rows];
    },
    async settled(channelIds, deadlineMs) {
      await until(
        'every event is settled',
        async () => {
          const [row] = await db.sql<[{ open: number }]>`
            select count(*)::int as open from inbound_events
            where state in ('queued', 'processing') and channel_id = any (${channelIds}::uuid[])`;
          return row.open === 0;
        },
        deadlineMs,
      );
    },
    async restart() {
      // It went with the service.
      await db.close().catch(() => undefined);
      await service.restart();
      db = openServiceDatabase(service);
    },
    async close() {
      sockets.destroy();
      await db.close().catch(() => undefined);
      await service.end();
    },
  };
  return world;
}

function codeIn(text: string): string | null {
  try {
    return (JSON.parse(text) as { code?: string }).code ?? null;
  } catch {
    return null;
  }
}

/** The message with this id, in a conversation of its own. */
export const said = (side: KindSide, id: string): Unsigned =>
  side.fixture.message({ id, place: id, text: numbered(id) });

/** Takes messages of whoever is there, however many. */
export const everybody = (side: KindSide): Fixture['settings'] => {
  const given: Fixture['settings'] = { allowedSenders: [], maxAnswersPerSender: 1_000 };
  const known = kindOf(side.fixture).settings.map(({ name }) => name);
  return Object.fromEntries(Object.entries(given).filter(([name]) => known.includes(name)));
};
