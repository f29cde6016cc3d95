import { z } from 'zod';
import { channelKinds } from '../../domain/channel.ts';
import { limits } from '../../domain/limits.ts';
import { model, name, nextCursor, time, uuid } from './basics.ts';

const kind = z.enum(channelKinds).describe('Which kind of system it is for.');
const settings = z
  .record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.array(z.string())]))
  .describe('What the kind takes; see the guide to channels.');
const values = (description: string) => z.record(z.string(), z.unknown()).describe(description).optional();
const apiBaseUrl = z
  .string()
  .max(2_000)
  .nullable()
  .describe(
    "In place of the provider's own API: private clouds, self-hosted servers, tests. Null: the provider's.",
  );

export const Channel = model(
  'Channel',
  z.object({
    id: uuid('Identifier of the channel.'),
    agentId: uuid('The agent that is reached by it.'),
    kind,
    name: z.string().describe('What you called it.'),
    status: z.enum(['active', 'paused', 'error']).describe('A paused one answers as if it were not there.'),
    webhookUrl: z.string().describe('Enter it at the provider.'),
    settings,
    credentialsSet: z
      .array(z.string())
      .describe('Names of the credentials that are set; values are never shown.'),
    apiBaseUrl,
    lastEventAt: time('When something last came in; null: never.').nullable(),
    lastError: z.string().nullable().describe('What was last wrong with what came in, in words.'),
    createdAt: time('When it was made.'),
  }),
  'A way by which an outside system reaches an agent, and is answered.',
);
export const ChannelAnswer = model('ChannelAnswer', z.object({ channel: Channel }));
export const ChannelWithSecret = model(
  'ChannelWithSecret',
  z.object({
    channel: Channel,
    secret: z
      .string()
      .nullable()
      .describe(
        'The signing secret, when the service made it: shown this once. Null when the provider gives it.',
      ),
  }),
);
export const ChannelPage = model('ChannelPage', z.object({ channels: z.array(Channel), nextCursor }));

const changes = {
  name: name().optional(),
  settings: values('By name; null takes one back to its default.'),
  credentials: values('By name, write-only; null takes one away.'),
  apiBaseUrl: apiBaseUrl.optional(),
};
export const ChannelCreate = model('ChannelCreate', z.strictObject({ kind, ...changes }));
export const ChannelUpdate = model(
  'ChannelUpdate',
  z.strictObject({
    ...changes,
    credentials: values(
      'By name, write-only; null takes one away. Those that the change would send to another place than before (another origin of apiBaseUrl, another mail service) have to be given again.',
    ),
  }),
);
export const ChannelRotateSend = model(
  'ChannelRotateSend',
  z.strictObject({
    value: z
      .string()
      .min(1)
      .max(16_384)
      .describe(
        `The new secret, for kinds whose provider gives it. The one before still holds for ${limits.previousSecretHours} hours.`,
      )
      .optional(),
  }),
);

export const InboundEvent = model(
  'InboundEvent',
  z.object({
    id: uuid('Identifier of the event.'),
    channelId: uuid('The channel by which it came.'),
    agentId: uuid('The agent that it is for.'),
    kind: z.string().describe('Such as `slack.message`, `slack.retry`, `email.received`.'),
    state: z
      .enum(['queued', 'processing', 'done', 'ignored', 'duplicate', 'failed', 'dead'])
      .describe('`failed`: another attempt cannot help. `dead`: no attempt helped.'),
    reason: z.string().nullable().describe('Why it is ignored, failed or dead.'),
    duplicateOf: uuid('The event that it is another copy of.').nullable(),
    joinedTo: uuid('The event in whose turn it is answered, together with others.').nullable(),
    retryCount: z.int().describe('How often the sender delivered it again.'),
    conversationId: uuid('Where it went.').nullable(),
    runId: uuid('The turn that it started.').nullable(),
    receivedAt: time('When it came in.'),
    history: z
      .array(z.object({ state: z.string(), at: z.string(), reason: z.string().nullable() }))
      .describe('Every state that it had, oldest first.'),
  }),
  'Something that came in by a channel, and what became of it.',
);
export const InboundEventAnswer = model('InboundEventAnswer', z.object({ event: InboundEvent }));
export const InboundEventPage = model(
  'InboundEventPage',
  z.object({ events: z.array(InboundEvent), nextCursor }),
);

export const ChannelTestSend = model(
  'ChannelTestSend',
  z.strictObject({
    event: z
      .string()
      .max(80)
      .describe(
        'Such as `slack.message`, `slack.retry`, `email.received`; left out, the usual one of the kind.',
      )
      .optional(),
    text: z.string().min(1).max(4_000).describe('What the made-up person says.').optional(),
    answer: z
      .boolean()
      .describe(
        'Whether the answer is sent to the provider too, to where the sample says that it came from. Left out: it stands in the conversation alone.',
      )
      .optional(),
  }),
);
export const ChannelTested = model(
  'ChannelTested',
  z.object({
    answer: z
      .object({ status: z.int(), body: z.string() })
      .describe('What the provider would have been answered.'),
    verified: z
      .boolean()
      .describe('False: the provider signs with a key that it alone has, so no signature was checked.'),
    events: z.array(InboundEvent).describe('What was stored.'),
  }),
);
export const InboundReplaySend = model(
  'InboundReplaySend',
  z.strictObject({
    since: time('Those that came in at this time or later.'),
    channelId: uuid('Those of this channel alone.').optional(),
  }),
);
export const InboundReplayed = model(
  'InboundReplayed',
  z.object({
    replayed: z.int().describe(`How many are queued again, at most ${limits.replayedAtOnce} by one call.`),
    left: z.int().describe('How many more there are; call again.'),
    doubtful: z
      .int()
      .describe(
        'How many are left out, since their answer may have been sent: replay each by itself to send it again.',
      ),
  }),
);

const id = '0197c2b4-6f7e-7c2a-9d51-3f0a1c9be842';
export const channelExample = {
  id,
  agentId: '0197c2b4-6f7e-7c2a-9d51-3f0a1c9be841',
  kind: 'slack' as const,
  name: 'Support',
  status: 'active' as const,
  webhookUrl: `http://localhost:8080/api/webhooks/slack/${id}`,
  settings: { respondTo: 'mention', replyMode: 'thread', allowBots: false, streaming: false },
  credentialsSet: ['botToken', 'signingSecret'],
  apiBaseUrl: null,
  lastEventAt: '2026-11-28T09:30:00.000Z',
  lastError: null,
  createdAt: '2026-11-28T09:00:00.000Z',
};
export const inboundEventExample = {
  id: '0197c2b4-7000-7c2a-9d51-3f0a1c9be842',
  channelId: id,
  agentId: channelExample.agentId,
  kind: 'slack.message',
  state: 'done' as const,
  reason: null,
  duplicateOf: null,
  joinedTo: null,
  retryCount: 0,
  conversationId: '0197c2b4-7001-7c2a-9d51-3f0a1c9be842',
  runId: '0197c2b4-7002-7c2a-9d51-3f0a1c9be842',
  receivedAt: '2026-11-28T09:30:00.000Z',
  history: [{ state: 'queued', at: '2026-11-28T09:30:00.000Z', reason: null }],
};
