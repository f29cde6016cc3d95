import type { ChannelSetup, InboundAnswer, InboundRequest } from './channel.ts';

/** What a delivery to an address that several channels share says of itself. Nothing of it has been verified. */
export type SharedDelivery =
  /** A handshake that has no effect, and its answer. */
  { answer: InboundAnswer } | { appId: string; places: Record<string, string | null> };

/** An outside app with one address for the channels of several agents. */
export interface SharedApp {
  /** Throws DomainError for what no honest sender sends. */
  read(request: InboundRequest): SharedDelivery;
  /** How exactly a channel names these places; null: it does not take what comes from there. */
  fit(setup: Pick<ChannelSetup, 'settings'>, places: Record<string, string | null>): number | null;
}
