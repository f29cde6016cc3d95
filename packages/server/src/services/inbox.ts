import type { ChannelKindName } from '../domain/channel.ts';
import { channelKinds } from '../domain/channel.ts';
import { boundedKey } from '../domain/bounded-key.ts';
import { isUnstorable } from '../domain/database-away.ts';
import { DomainError, notFound } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import type {
  ChannelKind,
  InboundAnswer,
  InboundEvent,
  InboundRequest,
  ParsedRequest,
} from '../domain/ports/channel.ts';
import { receiving } from '../domain/receive.ts';
import { bySize, oneStep, type BodySender } from '../domain/slices.ts';
import type { ChannelStore } from '../store/channels.ts';
import type {
  InboundEventStore,
  NewInboundEvent,
  SampleMark,
  StoredRequest,
} from '../store/inbound-events.ts';
import type { ChannelSetups } from './channels.ts';
import { unread } from '../store/inbound-queue.ts';
import type { Backlog } from './backlog.ts';
import type { ForgeryBudget } from './forgery-budget.ts';
import { createGroupCommit } from './group-commit.ts';
import type { GuardedCaller } from './guarded-call.ts';
import type { InboundPace } from './inbound-pace.ts';
import { keptRequest } from './kept-request.ts';
import { createProofDocuments } from './proof-documents.ts';

export interface InboxDependencies {
  channels: ChannelStore;
  setups: ChannelSetups;
  events: InboundEventStore;
  kinds: Readonly<Record<ChannelKindName, ChannelKind>>;
  caller: GuardedCaller;
  forgeries: ForgeryBudget;
  backlog: Backlog;
  pace: Pick<InboundPace, 'taken'>;
  log: Log;
  /** Told after each commit: there is work. */
  onStored: () => void;
  /** Within which a sender is told whether it was stored; default: before Slack gives up, after three seconds. */
  answerMs?: number;
  now?: () => number;
}

export interface Inbox {
  /** What the channel takes, before any of a body is read. Throws `not_found`: unknown, paused, or of another kind. */
  admit(kind: string, channelId: string): Promise<Admitted>;
  /**
   * Answers when what came in is durable. Throws `not_found`, `signature_invalid`, `unavailable`, and what is wrong with
   * the request. `gone`: of a sender that sends again when it was not answered; what waits is let go then.
   */
  receive(
    kind: string,
    channelId: string,
    request: InboundRequest,
    gone?: AbortSignal,
  ): Promise<InboundAnswer>;
  /** The same for what needs no proof, since the service itself has taken it in (mail over SMTP). */
  take(kind: string, channelId: string, request: InboundRequest): Promise<void>;
  /** The same for a delivery that the service made itself, on a channel that takes what comes. */
  receiveSample(found: OpenChannel, request: InboundRequest, sample: SampleDelivery): Promise<ReceivedSample>;
}

export type Admitted = Pick<ChannelKind, 'bodyBytes' | 'methods' | 'lane' | 'whenBusy'> & {
  /** Of the channel's agent; `shared` where it is not known yet. */
  orgId: string;
  /** Larger bodies have to wait: too much came that could not be verified. */
  hurriedBytes?: number;
};

export interface SampleDelivery extends SampleMark {
  /** False: nobody but the provider could sign it, so no signature is looked for. */
  isSigned: boolean;
}

export interface ReceivedSample {
  answer: InboundAnswer;
  /** Of what may have been stored: the event, and its retry. */
  eventIds: string[];
}

type OpenChannel = NonNullable<Awaited<ReturnType<ChannelSetups['open']>>>;

/** So that strangers who send wrong signatures cause no write each. */
const errorEveryMs = 60_000;
/** Slack gives up after three seconds; a commit that comes later is found by the next attempt. */
const usualAnswerMs = 1_500;

export function createInbox(deps: InboxDependencies): Inbox {
  const { now = Date.now, answerMs = usualAnswerMs } = deps;
  const documents = createProofDocuments(deps.caller, now);
  const toldErrors = new Map<string, number>();
  const commit = createGroupCommit<NewInboundEvent>({
    write: async (events) => {
      await deps.events.insertBatch(events);
      deps.onStored();
    },
    sizeOf: (event) => event.body.length + 500,
    maxBatch: 256,
    maxBatchBytes: 8 * 1024 * 1024,
    // Most deliveries have some kilobytes; a large mail takes a hundred times as long as one of them.
    largeBytes: 64 * 1024,
    maxLargeBatchBytes: 2 * 1024 * 1024,
    maxLargeWaitingBytes: 8 * 1024 * 1024,
    ownerOf: (event) => event.orgId,
    maxWaiting: 4_000,
    maxWaitingBytes: 64 * 1024 * 1024,
    parallel: 2,
  });

  async function admitted(kindName: string, channelId: string) {
    const kind = kindOf(deps.kinds, kindName);
    const found = await deps.setups.open(channelId).catch((error: unknown) => {
      throw asBusy(kind, error);
    });
    if (!found || found.row.kind !== kindName || found.row.status === 'paused') throw notFound();
    return { kind, found };
  }

  /** Asks for what the kind wants to see, at most the two documents that any of them needs, and one of them anew. */
  async function verified(
    kind: ChannelKind,
    request: InboundRequest,
    { row, setup }: OpenChannel,
    gone?: AbortSignal,
  ): Promise<ParsedRequest> {
    const sender: BodySender = { orgId: row.orgId, id: row.id, gone };
    for (let round = 0; round < 4; round += 1) {
      const fresh = documents.fresh();
      const work = receiving(kind, request, setup, now(), fresh);
      const received = await bySize(sender, request.body.length, work);
      if (received.result === 'accepted') return received.parsed;
      if (received.result === 'forged') {
        const { unnamedIn } = received;
        if (unnamedIn !== null && (await documents.refresh(unnamedIn, fresh))) continue;
        deps.forgeries.spend(setup.channelId);
        tellError(setup.channelId, received.message);
        throw new DomainError('signature_invalid', 'The request could not be verified.');
      }
      const { url } = received;
      if (deps.forgeries.isSpent(setup.channelId) && !documents.isDue(url)) throw asBusy(kind, null);
      await documents.fetch(url).catch((error: unknown) => {
        deps.forgeries.spend(setup.channelId);
        throw error;
      });
    }
    throw new DomainError('signature_invalid', 'The request could not be verified.');
  }

  function parsed(kind: ChannelKind, request: InboundRequest, { row, setup }: OpenChannel) {
    const work = oneStep(() => kind.parse(request, setup));
    return bySize({ orgId: row.orgId, id: row.id }, request.body.length, work);
  }

  function tellError(channelId: string, message: string): void {
    if (now() - (toldErrors.get(channelId) ?? 0) < errorEveryMs) return;
    if (toldErrors.size > 20_000) toldErrors.clear();
    toldErrors.set(channelId, now());
    deps.channels.noteError(channelId, message).catch((error: unknown) => {
      deps.log.warn('What is wrong with a channel could not be noted.', { channelId, error });
    });
  }

  async function store(
    { row, setup }: OpenChannel,
    kind: ChannelKind,
    request: InboundRequest,
    parsed: ParsedRequest,
    sample?: SampleMark,
  ): Promise<string[]> {
    const receivedAt = new Date(now());
    const kept = {
      ...keptRequest(request, kind, setup),
      at: receivedAt.toISOString(),
      ...(sample && { sample }),
    };
    const events = parsed.events.map((event, place): NewInboundEvent => ({
      id: newId(),
      channelId: row.id,
      orgId: row.orgId,
      agentId: row.agentId,
      kind: event.kind,
      deliveryKey: boundedKey(event.deliveryKey),
      ...keptOf(event, place, kept, request, parsed.events.length),
      line: event.mail ? unread : event.conversationKey && boundedKey(event.conversationKey),
      ignore: event.ignore,
      retry: event.retry && { attempt: event.retry.attempt, kind: `${row.kind}.retry`, id: newId() },
      receivedAt,
    }));
    const isReserved = kind.lane(request) === 'reserved';
    await deps.backlog.requireRoom(row.orgId, isReserved).catch((error: unknown) => {
      if (error instanceof DomainError) tellError(row.id, error.message);
      throw error;
    });
    const written = commit.add(events, isReserved);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(tooLate());
        written.catch((error: unknown) => {
          deps.log.warn('A delivery could not be stored, and its sender waits no more.', {
            channelId: row.id,
            error: String(error),
          });
          tellError(row.id, 'A delivery could not be stored.');
        });
      }, answerMs);
    });
    const startedMs = performance.now();
    await Promise.race([written, late]).finally(() => clearTimeout(timer));
    deps.pace.taken(performance.now() - startedMs);
    return events.flatMap((event) => [event.id, ...(event.retry ? [event.retry.id] : [])]);
  }

  async function storeOrTell(
    found: OpenChannel,
    kind: ChannelKind,
    request: InboundRequest,
    parsed: ParsedRequest,
  ): Promise<void> {
    await store(found, kind, request, parsed).catch((error: unknown) => {
      if (isUnstorable(error)) {
        throw new DomainError('invalid_request', 'It holds something that cannot be stored.', {
          cause: error,
        });
      }
      throw asBusy(kind, error);
    });
  }

  return {
    async admit(kindName, channelId) {
      const { kind, found } = await admitted(kindName, channelId);
      return hurried(kind, deps.forgeries, { key: channelId, orgId: found.row.orgId });
    },

    async receive(kindName, channelId, request, gone) {
      const { kind, found } = await admitted(kindName, channelId);
      const read = await verified(kind, request, found, gone);
      if (read.events.length > 0) {
        await storeOrTell(found, kind, request, read);
      }
      if (read.followUp) {
        const { followUp } = read;
        deps.caller.call(followUp).catch((error: unknown) => {
          deps.log.warn('A subscription could not be confirmed.', { channelId, error });
        });
      }
      return read.answer;
    },

    async take(kindName, channelId, request) {
      const { kind, found } = await admitted(kindName, channelId);
      await storeOrTell(found, kind, request, await parsed(kind, request, found));
    },

    async receiveSample(found, request, { isSigned, ...sample }) {
      const kind = deps.kinds[found.row.kind];
      const read = isSigned ? await verified(kind, request, found) : await parsed(kind, request, found);
      const eventIds = await store(found, kind, request, read, sample);
      return { answer: read.answer, eventIds };
    },
  };
}

/**
 * What is kept of a delivery for one of its events. Of several each has its own part: the whole body beside every one of them
 * would be as many times as large.
 */
function keptOf(
  { alone }: InboundEvent,
  place: number,
  kept: StoredRequest,
  { body }: InboundRequest,
  count: number,
): Pick<NewInboundEvent, 'request' | 'body' | 'place'> {
  if (alone === null || count === 1) return { request: kept, body, place };
  const headers: StoredRequest['headers'] = [['content-type', 'application/json']];
  return { request: { ...kept, headers }, body: Buffer.from(JSON.stringify(alone())), place: 0 };
}

/** What is taken of a channel to which forgeries come. */
export const hurried = (
  kind: ChannelKind,
  forgeries: ForgeryBudget,
  { key, orgId }: { key: string; orgId: string },
): Admitted => ({
  ...kind,
  orgId,
  ...(forgeries.isSpent(key) && { hurriedBytes: limits.forgedBodyBytes }),
});

function kindOf(kinds: InboxDependencies['kinds'], name: string): ChannelKind {
  const known = channelKinds.find((kind) => kind === name);
  if (!known) throw notFound();
  return kinds[known];
}

/** Made when it is needed only: an error notes the stack, which costs more than all else that is done to store an event. */
const tooLate = () =>
  new DomainError('unavailable', 'It could not be stored in time; send it again.', { retryAfterSeconds: 2 });

/** Whatever is busy or away, this sender is to try again, by the status that makes it do so. */
export function asBusy(kind: Pick<ChannelKind, 'whenBusy'>, error: unknown): DomainError {
  const seconds = error instanceof DomainError ? (error.retryAfterSeconds ?? 5) : 5;
  const code = kind.whenBusy === 429 ? 'queue_full' : 'unavailable';
  return new DomainError(code, 'It could not be stored just now; send it again.', {
    cause: error,
    retryAfterSeconds: seconds,
  });
}
