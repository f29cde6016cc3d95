/** A way by which an outside system reaches one agent, and is answered (API contract, section 5). */

export const channelKinds = [
  'slack',
  'email',
  'github',
  'gitlab',
  'linear',
  'telegram',
  'discord',
  'whatsapp',
  'twilio',
  'teams',
  'googlechat',
  'generic',
] as const;

export type ChannelKindName = (typeof channelKinds)[number];

export type ChannelStatus = 'active' | 'paused' | 'error';

export type InboundState = 'queued' | 'processing' | 'done' | 'ignored' | 'duplicate' | 'failed' | 'dead';

/**
 * Why an event is kept but starts no turn. Each one is either not a person's new message, or a message that answering
 * would turn into a loop.
 */
export type IgnoreReason =
  /** Sent by the channel's own bot or address. */
  | 'own_message'
  /** Sent by another bot, which the channel does not answer (`allowBots`). */
  | 'other_bot'
  | 'auto_reply'
  | 'bounce'
  | 'mailing_list'
  | 'edited'
  | 'deleted'
  | 'empty'
  /** Not meant for the agent: no mention, another repository, a sender who is not on the list. */
  | 'not_addressed'
  | 'sender_not_allowed'
  /** A sender whose domain did not vouch for the mail (`requireDmarcPass`). */
  | 'not_authenticated'
  /** A kind of event that carries no text of a person. */
  | 'not_a_message';
