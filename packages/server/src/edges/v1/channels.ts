import { given } from '../http/given.ts';
import { route } from '../http/route.ts';
import { channelOf, inboundEventOf } from '../present/channel.ts';
import { pageQuery } from '../schemas/basics.ts';
import {
  ChannelAnswer,
  ChannelCreate,
  channelExample,
  ChannelPage,
  ChannelRotateSend,
  ChannelTested,
  ChannelTestSend,
  ChannelUpdate,
  ChannelWithSecret,
  inboundEventExample,
} from '../schemas/channel.ts';

const tag = 'Channels';
const one = { schema: ChannelAnswer, example: { channel: channelExample } };

export const channelRoutes = [
  route({
    id: 'listChannels',
    method: 'get',
    path: '/v1/agents/{agentId}/channels',
    tag,
    access: 'edit',
    summary: "List an agent's channels",
    description: 'Newest first.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of channels.',
        schema: ChannelPage,
        example: { channels: [channelExample], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query, addresses }) {
      const page = await services.channels.list(caller, params.agentId, query);
      const channels = page.items.map((channel) => channelOf(channel, addresses.baseUrl));
      return { status: 200 as const, body: { channels, nextCursor: page.nextCursor } };
    },
  }),
  route({
    id: 'createChannel',
    method: 'post',
    path: '/v1/agents/{agentId}/channels',
    tag,
    access: 'edit',
    summary: 'Let an outside system reach an agent',
    description:
      'Enter `webhookUrl` at the provider. Credentials are write-only, kept apart from the secrets of the agent, and never in its sandbox. A signing secret that is left out is made where the provider does not give one, and shown once.',
    showsSecret: true,
    body: ChannelCreate,
    bodyExample: {
      kind: 'slack',
      name: 'Support',
      settings: { respondTo: 'mention' },
      credentials: { signingSecret: '8f742231b10e8888abcd99yyyzzz85a5', botToken: 'xoxb-…' },
    },
    replies: {
      201: {
        description: 'The channel.',
        schema: ChannelWithSecret,
        example: { channel: channelExample, secret: null },
        headers: { Location: 'Path of the channel.' },
      },
    },
    errors: ['conflict'],
    async handler({ services, caller, params, body, addresses }) {
      const made = await services.channels.create(caller, params.agentId, given(body));
      return {
        status: 201 as const,
        body: { channel: channelOf(made.channel, addresses.baseUrl), secret: made.secret },
        headers: { Location: `/v1/channels/${made.channel.id}` },
        ...(made.secret !== null && { secretOf: made.channel.id }),
      };
    },
  }),
  route({
    id: 'getChannel',
    method: 'get',
    path: '/v1/channels/{channelId}',
    tag,
    access: 'edit',
    summary: 'Get a channel',
    description: 'Without the values of its credentials.',
    replies: { 200: { ...one, description: 'The channel.' } },
    async handler({ services, caller, params, addresses }) {
      const channel = await services.channels.get(caller, params.channelId);
      return { status: 200 as const, body: { channel: channelOf(channel, addresses.baseUrl) } };
    },
  }),
  route({
    id: 'updateChannel',
    method: 'patch',
    path: '/v1/channels/{channelId}',
    tag,
    access: 'edit',
    summary: 'Change a channel',
    description:
      'Settings and credentials that are not named stay as they are. Known on every replica within a second.',
    body: ChannelUpdate,
    bodyExample: { settings: { respondTo: 'all' } },
    replies: { 200: { ...one, description: 'The channel as it is now.' } },
    async handler({ services, caller, params, body, addresses }) {
      const channel = await services.channels.update(caller, params.channelId, given(body));
      return { status: 200 as const, body: { channel: channelOf(channel, addresses.baseUrl) } };
    },
  }),
  route({
    id: 'deleteChannel',
    method: 'delete',
    path: '/v1/channels/{channelId}',
    tag,
    access: 'edit',
    summary: 'Delete a channel',
    description: 'With its inbound events; conversations stay.',
    replies: { 204: { description: 'It is gone.', schema: null } },
    async handler({ services, caller, params }) {
      await services.channels.remove(caller, params.channelId);
      return { status: 204 as const };
    },
  }),
  ...(['pause', 'resume'] as const).map((action) =>
    route({
      id: action === 'pause' ? 'pauseChannel' : 'resumeChannel',
      method: 'post',
      path: action === 'pause' ? '/v1/channels/{channelId}/pause' : '/v1/channels/{channelId}/resume',
      tag,
      access: 'edit',
      summary: action === 'pause' ? 'Pause a channel' : 'Resume a channel',
      description:
        action === 'pause'
          ? 'It takes nothing any more, as if it were not there. What was taken is still worked on and answered.'
          : 'It takes what comes in again.',
      replies: { 200: { ...one, description: 'The channel as it is now.' } },
      async handler({ services, caller, params, addresses }) {
        const channel = await services.channels[action](caller, params.channelId);
        return { status: 200 as const, body: { channel: channelOf(channel, addresses.baseUrl) } };
      },
    }),
  ),
  route({
    id: 'rotateChannelSecret',
    method: 'post',
    path: '/v1/channels/{channelId}/rotate-secret',
    tag,
    access: 'edit',
    summary: 'Change the signing secret',
    description:
      'What is signed with the secret before is taken for a day, so that nothing is lost while the provider is changed too.',
    showsSecret: true,
    body: ChannelRotateSend,
    bodyExample: {},
    replies: {
      200: {
        description: 'The channel, and the new secret when the service made it.',
        schema: ChannelWithSecret,
        example: { channel: channelExample, secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' },
      },
    },
    errors: ['conflict'],
    async handler({ services, caller, params, body, addresses }) {
      const made = await services.channels.rotateSecret(caller, params.channelId, given(body));
      return {
        status: 200 as const,
        body: { channel: channelOf(made.channel, addresses.baseUrl), secret: made.secret },
        ...(made.secret !== null && { secretOf: made.channel.id }),
      };
    },
  }),
  route({
    id: 'testChannel',
    method: 'post',
    path: '/v1/channels/{channelId}/test',
    tag,
    access: 'edit',
    idempotency: 'lease',
    summary: 'Try a channel with a sample',
    description:
      'Makes a delivery as the provider would, signed with the secret of the channel, and takes it in as one: it is verified, stored, and the agent works on it.',
    body: ChannelTestSend,
    bodyExample: { event: 'slack.message' },
    replies: {
      200: {
        description: 'What became of it so far.',
        schema: ChannelTested,
        example: { answer: { status: 200, body: '' }, verified: true, events: [inboundEventExample] },
      },
    },
    errors: ['conflict', 'queue_full', 'unavailable'],
    async handler({ services, caller, params, body }) {
      const { event, text, answer } = given(body);
      const tested = await services.channels.test(
        caller,
        params.channelId,
        given({ event, text, isAnswered: answer }),
      );
      return {
        status: 200 as const,
        body: {
          answer: tested.answer,
          verified: tested.isVerified,
          events: tested.events.map(inboundEventOf),
        },
      };
    },
  }),
];
