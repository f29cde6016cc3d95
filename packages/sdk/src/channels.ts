import type { ListOptions, Page } from './client.ts';
import type { RequestOptions } from './http.ts';
import type {
  Channel,
  ChannelCreate,
  ChannelTested,
  ChannelTestSend,
  ChannelUpdate,
  ChannelWithSecret,
  InboundEvent,
  InboundReplayed,
  InboundReplaySend,
} from './types.ts';

const id = encodeURIComponent;

/** Ways by which other systems reach an agent, and what came in by them. */
export function createChannels(
  json: <T>(method: string, path: string, request?: RequestOptions) => Promise<T>,
  list: <T>(path: string, noun: string, query?: ListOptions) => Promise<Page<T>>,
) {
  const change = async (method: string, path: string, body: object) =>
    (await json<{ channel: Channel }>(method, path, { body })).channel;

  return {
    channels: {
      list: (agentId: string, query?: ListOptions) =>
        list<Channel>(`/v1/agents/${id(agentId)}/channels`, 'channels', query),
      get: async (channelId: string) =>
        (await json<{ channel: Channel }>('GET', `/v1/channels/${id(channelId)}`)).channel,
      create: (agentId: string, input: ChannelCreate) =>
        json<ChannelWithSecret>('POST', `/v1/agents/${id(agentId)}/channels`, { body: input }),
      update: (channelId: string, patch: ChannelUpdate) =>
        change('PATCH', `/v1/channels/${id(channelId)}`, patch),
      delete: (channelId: string) => json<void>('DELETE', `/v1/channels/${id(channelId)}`),
      pause: (channelId: string) => change('POST', `/v1/channels/${id(channelId)}/pause`, {}),
      resume: (channelId: string) => change('POST', `/v1/channels/${id(channelId)}/resume`, {}),
      /** Without a value the service makes the secret, where the provider does not. */
      rotateSecret: (channelId: string, input: { value?: string } = {}) =>
        json<ChannelWithSecret>('POST', `/v1/channels/${id(channelId)}/rotate-secret`, { body: input }),
      /** Takes in a sample, signed by the service with the secret of the channel. */
      test: (channelId: string, input: ChannelTestSend = {}) =>
        json<ChannelTested>('POST', `/v1/channels/${id(channelId)}/test`, { body: input }),
    },
    inboundEvents: {
      list: (agentId: string, query?: ListOptions) =>
        list<InboundEvent>(`/v1/agents/${id(agentId)}/inbound-events`, 'events', query),
      get: async (eventId: string) =>
        (await json<{ event: InboundEvent }>('GET', `/v1/inbound-events/${id(eventId)}`)).event,
      replay: async (eventId: string) =>
        (
          await json<{ event: InboundEvent }>('POST', `/v1/inbound-events/${id(eventId)}/replay`, {
            body: {},
          })
        ).event,
      /** All that failed since a time; call again while `left` is more than 0. */
      replayFailed: (agentId: string, which: InboundReplaySend) =>
        json<InboundReplayed>('POST', `/v1/agents/${id(agentId)}/inbound-events/replay`, { body: which }),
    },
  };
}
