import type { Answer, ChannelSetup, HttpCall, HttpReply, InboundEvent } from './channel.ts';

/** Reads the mail of events, apart from everything else: what strangers send is parsed in threads of their own. */
export interface ChannelMail {
  /** What has to be asked of the provider first; null when all is there. */
  fetch(event: InboundEvent, setup: ChannelSetup, nowMs: number): HttpCall | null;
  withFetched(event: InboundEvent, reply: HttpReply): InboundEvent;
  /** A mail that takes long holds up nobody's but that of its own organisation. */
  complete(
    event: InboundEvent,
    setup: ChannelSetup,
    orgId: string,
  ): Promise<{ event: InboundEvent } | { problem: string }>;
  /** Under which a reply to this answer will ask for its conversation. */
  sentKey(answer: Answer, setup: ChannelSetup): string;
}
