import { DomainError } from '../domain/errors.ts';
import type { ChannelKindName } from '../domain/channel.ts';
import type { Log } from '../domain/log.ts';
import { boundedKey } from '../domain/bounded-key.ts';
import { isTerminal, type Principal } from '../domain/nouns.ts';
import type { ChannelMail } from '../domain/ports/channel-mail.ts';
import type { ChannelKind, ChannelSetup, InboundEvent } from '../domain/ports/channel.ts';
import type { Database } from '../store/database.ts';
import type { DueEvent, InboundEventStore } from '../store/inbound-events.ts';
import type { RunsService } from './api.ts';
import type { ChannelSetups } from './channels.ts';
import { sendAnswer } from './channel-answer.ts';
import type { GuardedCaller } from './guarded-call.ts';

export interface InboundWorkDependencies {
  db: Database;
  events: InboundEventStore;
  setups: ChannelSetups;
  kinds: Readonly<Record<ChannelKindName, ChannelKind>>;
  mail: ChannelMail;
  runs: Pick<RunsService, 'send' | 'outcome'>;
  caller: GuardedCaller;
  log: Log;
  /** Told when an event can go on at once. */
  wake: () => void;
}

export interface InboundWork {
  /** Works on what is due, and says how many that were. */
  runDue(): Promise<number>;
}

/** Longer than any single event takes. */
const leaseMs = 180_000;
/** Between two looks at a run whose end was not heard of. */
const checkMs = 5_000;
const maxAttempts = 8;
/** 15 s, 30 s, 1 min … up to an hour: two hours in all. */
const backoffMs = (attempts: number) => Math.min(15_000 * 2 ** Math.max(0, attempts - 1), 3_600_000);

export function createInboundWork(deps: InboundWorkDependencies): InboundWork {
  const { db, events, log } = deps;

  async function work(due: DueEvent): Promise<void> {
    const found = await deps.setups.open(due.channelId);
    if (!found) return events.settle(due.id, 'failed', 'The agent of the channel was deleted.');
    const kind = deps.kinds[found.row.kind];
    if (due.runId === null) await begin(due, kind, found.setup);
    else await finish(due, due.runId, kind, found.setup);
  }

  async function begin(due: DueEvent, kind: ChannelKind, setup: ChannelSetup): Promise<void> {
    const request = { ...due.request, headers: new Map(due.request.headers), body: due.body };
    const parsed = kind.parse(request, setup).events[due.place];
    if (!parsed) return events.settle(due.id, 'failed', 'The request has no such event any more.');
    const read = await readMail(parsed, setup);
    if ('problem' in read)
      return events.settle(due.id, 'failed', `The mail could not be read: ${read.problem}.`);
    const { event } = read;
    if (event.ignore !== null) return events.settle(due.id, 'ignored', event.ignore);
    const keys = conversationKeys(event, kind.name);
    const known = await events.conversationOf(due.channelId, keys);
    if (known === null && event.onlyIfKnown) return events.settle(due.id, 'ignored', 'not_addressed');
    const cap = setup.settings['maxAnswersPerHour'];
    if (known !== null && typeof cap === 'number' && (await events.answeredLately(known)) >= cap) {
      return events.settle(due.id, 'ignored', 'too_many_answers');
    }
    await accept(due, event, keys, known);
  }

  /** The message, its conversation, its run and the state of its event: all of it, or nothing. */
  async function accept(
    due: DueEvent,
    event: InboundEvent,
    keys: string[],
    known: string | null,
  ): Promise<void> {
    const p = principalOf(due);
    const runId = await db.tx(async () => {
      const owner =
        event.messageKey === null
          ? due.id
          : await events.takeMessage(due.id, due.channelId, boundedKey(event.messageKey));
      if (owner !== due.id) {
        await events.settleDuplicate(due.id, owner);
        return null;
      }
      const accepted = await deps.runs.send(p, {
        agentId: due.agentId,
        conversationId: known,
        content: event.text.slice(0, 190_000) + attachmentNote(event),
        clientMessageId: event.messageKey === null ? null : boundedKey(event.messageKey),
        metadata: { channelId: due.channelId, eventId: due.id, kind: due.kind, sender: event.sender },
        onBusy: 'enqueue',
        source: due.kind.split('.')[0]!,
        // The event's own row, changed in this transaction, is what makes it happen once.
        idempotency: null,
      });
      if (keys.length > 0) await events.rememberConversation(due.channelId, keys, accepted.conversationId);
      await events.started(due.id, { ...accepted, replyTo: event.replyTo }, checkMs);
      return accepted.runId;
    });
    if (runId !== null) void follow(due, p, runId);
  }

  /** Goes on as soon as the run ends here; one that ends elsewhere is found by the next look. */
  async function follow(due: DueEvent, p: Principal, runId: string): Promise<void> {
    try {
      const { run } = await db.outside(() => deps.runs.outcome(p, runId, 600_000));
      if (!isTerminal(run.status)) return;
      await events.postpone(due.id, 0, false);
      deps.wake();
    } catch (error) {
      log.debug('The end of a run will be looked for.', { runId, error });
    }
  }

  async function readMail(
    event: InboundEvent,
    setup: ChannelSetup,
  ): Promise<{ event: InboundEvent } | { problem: string }> {
    if (event.mail === null) return { event };
    const call = deps.mail.fetch(event, setup, Date.now());
    if (call === null) return deps.mail.complete(event, setup);
    const reply = await deps.caller.call(call, { maxBytes: 40 * 1024 * 1024, timeoutMs: 30_000 });
    if (reply.status >= 300) throw new Error(`The mail could not be fetched: status ${reply.status}.`);
    return deps.mail.complete(deps.mail.withFetched(event, reply), setup);
  }

  async function finish(due: DueEvent, runId: string, kind: ChannelKind, setup: ChannelSetup): Promise<void> {
    const { run, message } = await deps.runs.outcome(principalOf(due), runId, 0);
    if (!isTerminal(run.status)) return events.postpone(due.id, checkMs, false);
    if (run.status !== 'completed') {
      return events.settle(due.id, 'failed', run.error?.error ?? `The run was ${run.status}.`);
    }
    if (due.replyTo === null || message === null || message.content.trim() === '') {
      return events.settle(due.id, 'done', null);
    }
    const answer = { text: message.content, replyTo: due.replyTo, outboxId: due.id };
    const outcome = await sendAnswer({ events, caller: deps.caller }, due.id, answer, kind, setup);
    if (outcome.outcome === 'retry') return retryLater(due, outcome.reason, outcome.afterMs);
    if (outcome.outcome === 'failed') return events.settle(due.id, 'failed', outcome.reason);
    if (kind.name === 'email') {
      const key = boundedKey(`${deps.mail.sentKey(answer, setup)}|${String(due.replyTo['to'])}`);
      await events.rememberConversation(due.channelId, [key], run.conversationId);
    }
    await events.settle(due.id, 'done', null);
  }

  async function retryLater(due: DueEvent, reason: string, afterMs: number | null): Promise<void> {
    if (due.attempts >= maxAttempts) return events.settle(due.id, 'dead', reason);
    await events.postpone(due.id, afterMs ?? backoffMs(due.attempts), true);
  }

  async function safely(due: DueEvent): Promise<void> {
    try {
      // Those before it in its channel may have taken long.
      if (await events.hold(due.id, due.attempts, leaseMs)) await work(due);
    } catch (error) {
      const isFinal = error instanceof DomainError && finalCodes.has(error.code);
      const reason = error instanceof DomainError ? error.message : 'It could not be worked on.';
      log.warn('An inbound event could not be worked on.', {
        eventId: due.id,
        attempts: due.attempts,
        error,
      });
      await (isFinal ? events.settle(due.id, 'failed', reason) : retryLater(due, reason, null)).catch(
        (again: unknown) =>
          log.warn('An inbound event waits for its lease to end.', { eventId: due.id, error: again }),
      );
    }
  }

  return {
    async runDue() {
      const due = await events.claimDue(16, leaseMs);
      const byChannel = Map.groupBy(
        due.sort((a, b) => (a.id < b.id ? -1 : 1)),
        (event) => event.channelId,
      );
      // One after the other in a channel: what was said first is first in its conversation.
      await Promise.all(
        [...byChannel.values()].map(async (list) => {
          for (const event of list) await safely(event);
        }),
      );
      return due.length;
    },
  };
}

/** What another attempt cannot change. */
const finalCodes = new Set([
  'budget_exceeded',
  'invalid_request',
  'invalid_json',
  'not_found',
  'unsupported_media_type',
]);

/** A channel may converse with its own agent, and nothing else. */
function principalOf(due: DueEvent): Principal {
  return {
    keyId: due.channelId,
    orgId: due.orgId,
    scope: 'use',
    binding: 'agent-bound',
    agentId: due.agentId,
  };
}

/**
 * The best first. Message ids of mail leak when it is forwarded, so that they join a conversation only together with the
 * sender who was in it.
 */
function conversationKeys(event: InboundEvent, kind: ChannelKindName): string[] {
  const bound = (key: string) =>
    kind === 'email' && key.startsWith('mail:') ? `${key}|${event.sender?.id ?? ''}` : key;
  const own = event.conversationKey === null ? [] : [event.conversationKey];
  return [...event.threadKeys, ...own].map(bound).map(boundedKey);
}

function attachmentNote({ attachments }: InboundEvent): string {
  if (attachments.length === 0) return '';
  const names = attachments
    .slice(0, 20)
    .map(({ name, mediaType }) => `- ${name.slice(0, 200)} (${mediaType.slice(0, 100)})`);
  return `\n\nAttachments:\n${names.join('\n')}`.trimStart();
}
