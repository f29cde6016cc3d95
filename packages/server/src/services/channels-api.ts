import type { ChannelKindName } from '../domain/channel.ts';
import type { Principal } from '../domain/nouns.ts';
import type { Page, PageQuery } from '../domain/paging.ts';
import type { ChannelRow } from '../store/channels.ts';

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
}
