import type { ChannelKindName } from '../domain/channel.ts';
import type { Log } from '../domain/log.ts';
import type { Principal } from '../domain/nouns.ts';
import type { ChannelMail } from '../domain/ports/channel-mail.ts';
import type { ChannelKind, ReplyTo } from '../domain/ports/channel.ts';
import type { ChannelAnswerStore } from '../store/channel-answers.ts';
import type { Database } from '../store/database.ts';
import type { DueEvent, InboundQueue } from '../store/inbound-queue.ts';
import type { AnswerStreams } from './answer-streams.ts';
import type { RunsService } from './api.ts';
import type { Attachments } from './attachments.ts';
import type { ChannelSetups } from './channels.ts';
import type { GuardedCaller } from './guarded-call.ts';
import type { InboundPace } from './inbound-pace.ts';

export interface InboundWorkDependencies {
  db: Database;
  /** The same after a restart. */
  nodeId: string;
  queue: InboundQueue;
  answers: ChannelAnswerStore;
  setups: ChannelSetups;
  kinds: Readonly<Record<ChannelKindName, ChannelKind>>;
  mail: ChannelMail;
  runs: Pick<RunsService, 'send' | 'outcome'>;
  caller: GuardedCaller;
  attachments: Attachments;
  streams: AnswerStreams;
  pace: Pick<InboundPace, 'share'>;
  log: Log;
  /** After which an attempt is given up, so that another one begins; default: `limits.inboundAttemptSeconds`. */
  longestAttemptMs?: number;
  /** Told when an event can go on at once. */
  wake: () => void;
}

/** What becomes of one attempt at an event. */
export type Worked =
  | 'over'
  /** `isTooMany`: the provider wants fewer at once; that is no attempt, for as long as `limits.tooManyHours`. */
  | { retry: string; afterMs: number | null; isTooMany?: boolean };

/** 15 s, 30 s, 1 min … up to an hour: two hours for the eight attempts. */
export const backoffMs = (attempts: number) => Math.min(15_000 * 2 ** Math.max(0, attempts - 1), 3_600_000);
/** Between two looks at a run whose end was not heard of. */
export const checkMs = 5_000;
/** An event that failed so often does not hold back those behind it any more: after some minutes. */
export const patience = 5;

/** Where the answer to a sample goes: nowhere. */
export const unanswered: ReplyTo = { sample: true };

/** A channel may converse with its own agent, and nothing else. */
export function principalOf(due: DueEvent): Principal {
  return {
    keyId: due.channelId,
    orgId: due.orgId,
    scope: 'use',
    binding: 'agent-bound',
    agentId: due.agentId,
  };
}
