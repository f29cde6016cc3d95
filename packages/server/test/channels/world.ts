import { randomBytes } from 'node:crypto';
import { openChannels } from '../../src/open-channels.ts';
import { createBox } from '../../src/domain/box.ts';
import { preconditionFailed } from '../../src/domain/preconditions.ts';
import { createCursors } from '../../src/domain/paging.ts';
import type { InboundRequest } from '../../src/domain/ports/channel.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { createChannelStore } from '../../src/store/channels.ts';
import { silentLog } from '../support/log.ts';
import { runWorld, type Replica, type ReplicaOptions } from '../support/run-world.ts';
import { slackDelivery, signSlack, slackSecret } from './fixtures/slack.ts';
import { hookUrl, type Unsigned } from './fixtures/fixture.ts';

const encryptionKey = randomBytes(32);
const cursorKey = randomBytes(32);

type Files = Parameters<typeof openChannels>[0]['files'];

/** Files that were written, by their path in the workspace. */
export function writtenFiles(written = new Map<string, Buffer>()): Files {
  return {
    async write(_principal, _agentId, path, { content }) {
      const name = path.names.map(String).join('/');
      if (written.has(name)) throw preconditionFailed();
      const bytes = Buffer.concat(await Array.fromAsync(content));
      written.set(name, bytes);
      const entry = {
        name: path.names.at(-1)!,
        type: 'file' as const,
        sizeBytes: bytes.length,
        mode: 0o644,
        modifiedAt: new Date(),
        target: null,
        version: '1',
      };
      return { entry, created: true };
    },
  };
}

/** All that receives, works and answers, over one replica of the run world. */
export function channelParts(
  { db, nodeId, runs, events }: Replica,
  files: Files = writtenFiles(),
  options: Pick<Parameters<typeof openChannels>[0], 'longestAttemptMs' | 'backlog' | 'answerMs'> = {},
) {
  return openChannels({
    // A sender that is told to send it again does so; the tests send once, however slow the machine is.
    answerMs: 60_000,
    ...options,
    files,
    db,
    nodeId,
    agents: createAgentStore(db),
    channels: createChannelStore(db),
    runs,
    runEvents: events,
    box: createBox([encryptionKey]),
    holdEncryptionKey: async () => {},
    cursors: createCursors(cursorKey),
    guard: createUrlGuard(['127.0.0.0/8']),
    baseUrl: 'https://berth.example',
    log: silentLog,
  });
}

export async function channelWorld(options: ReplicaOptions = {}) {
  const world = await runWorld();
  const replica = await world.replica(options);
  const written = new Map<string, Buffer>();
  const parts = channelParts(replica, writtenFiles(written));
  return {
    ...world,
    written,
    replica,
    addReplica: world.replica,
    ...parts,
    async close(): Promise<void> {
      await parts.close();
      await world.close();
    },
  };
}

export function slackRequest(
  unsigned: Unsigned,
  secret = slackSecret,
  extra: Record<string, string> = {},
): InboundRequest {
  const headers = {
    'content-type': 'application/json',
    ...extra,
    ...signSlack(unsigned, Date.now(), secret),
  };
  return {
    method: 'POST',
    url: hookUrl,
    headers: new Map(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])),
    body: Buffer.from(unsigned.body),
  };
}

/** One of the messages of a thread that began with `root`, which may be its own. */
export const threadMessage = (ts: string, root: string, text: string, user = 'U061F7AUR'): Unsigned =>
  slackDelivery(
    {
      type: 'app_mention',
      user,
      text: `<@U0BOT> ${text}`,
      ts,
      ...(ts === root ? {} : { thread_ts: root }),
      channel: 'C0LAN2Q65',
    },
    `Ev-${ts}`,
  );

/** A mention in a thread of its own. */
export const mention = (number: number, text = `<@U0BOT> message ${number}`): Unsigned =>
  slackDelivery(
    {
      type: 'app_mention',
      user: 'U061F7AUR',
      text,
      ts: `1759999999.${String(number).padStart(6, '0')}`,
      channel: 'C0LAN2Q65',
    },
    `Ev${number}`,
  );
