import type { ChannelKindName } from '../domain/channel.ts';
import type { Principal } from '../domain/nouns.ts';
import type { Page, PageQuery } from '../domain/paging.ts';
import type { ChannelRow } from '../store/channels.ts';
import type { InboundEventRow } from '../store/inbound-events.ts';

export type Channel = ChannelRow;

export interface ChannelInput {
  kind: ChannelKindName;
  /** The kind's own name when left out. */
  name?: string;
  settings?: Record<string, unknown>;
  credentials?: Record<string, unknown>;
  apiBaseUrl?: string | null;
}

export interface ChannelPatch {
  name?: string;
  /** Those that are named; null takes one back to its default. */
  settings?: Record<string, unknown>;
  /** Those that are named; null takes one away. */
  credentials?: Record<string, unknown>;
  apiBaseUrl?: string | null;
}

export interface ChannelWithSecret {
  channel: Channel;
  /** The signing secret, when the service made it; told once. */
  secret: string | null;
}

/** Every call needs edit access to the agent: a channel speaks in its name. */
export interface ChannelsService {
  list(p: Principal, agentId: string, query: PageQuery): Promise<Page<Channel>>;
  get(p: Principal, id: string): Promise<Channel>;
  create(p: Principal, agentId: string, input: ChannelInput): Promise<ChannelWithSecret>;
  update(p: Principal, id: string, patch: ChannelPatch): Promise<Channel>;
  remove(p: Principal, id: string): Promise<void>;
  pause(p: Principal, id: string): Promise<Channel>;
  /** Also after an error. */
  resume(p: Principal, id: string): Promise<Channel>;
  /** The secret before still holds for a day, so that both sides can change at leisure. */
  rotateSecret(p: Principal, id: string, input: { value?: string }): Promise<ChannelWithSecret>;
  /**
   * Makes a delivery as the provider would, signed with the channel's own secret, and takes it in as one. `conflict`:
   * the channel is paused. `invalid_request`: there is no sample of such an event.
   */
  test(p: Principal, id: string, input: ChannelTestInput): Promise<ChannelTested>;
}

export interface ChannelTestInput {
  /** Such as `slack.message`; the usual one of the kind when left out. */
  event?: string;
  /** What the made-up person says. */
  text?: string;
  /** Whether the answer is sent to the provider, to where the sample says that it came from. Usually not. */
  isAnswered?: boolean;
}

export interface ChannelTested {
  /** What the provider would have been answered. */
  answer: { status: number; body: string };
  /** False: no signature was checked, since the provider signs with a key that it alone has. */
  isVerified: boolean;
  /** What was stored: the event, and for a retry the record of it. */
  events: InboundEventRow[];
}
