import type { ChannelKindName } from '../channel.ts';
import type { ChannelSetup, InboundRequest } from './channel.ts';

export interface SampleInput {
  /** One of `names`. */
  event: string;
  /** What the made-up person says. */
  text: string;
  /** Never given before: what is delivered under it is new. Letters and digits. */
  id: string;
  /** The webhook's own address, as its sender sees it. */
  url: string;
  nowMs: number;
}

export interface Sample {
  /** What its sender would deliver, in order. */
  requests: InboundRequest[];
  /** False: the provider signs with a private key of its own, so that nobody else can make a genuine one. */
  isSigned: boolean;
  /** What the provider's API would answer when it is asked for the rest of it; null when all is there. */
  fetched: string | null;
}

/** Deliveries as a provider makes them, signed with the secret of a channel. */
export interface ChannelSamples {
  /** Kinds of events that can be made for a channel; the usual one first. A `*` at the end stands for any plain name. */
  names(kind: ChannelKindName, setup: ChannelSetup): readonly string[];
  make(kind: ChannelKindName, input: SampleInput, setup: ChannelSetup): Sample;
}
