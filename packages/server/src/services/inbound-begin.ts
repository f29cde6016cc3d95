import type { ChannelKindName } from '../domain/channel.ts';
import { boundedKey } from '../domain/bounded-key.ts';
import { cleanText } from '../domain/clean-text.ts';
import { limits } from '../domain/limits.ts';
import type { ChannelKind, ChannelSetup, InboundEvent, ReplyTo } from '../domain/ports/channel.ts';
import { bySize, oneStep } from '../domain/slices.ts';
import { requireNotTooMany } from './guarded-call.ts';
import { unread, type DueEvent } from '../store/inbound-queue.ts';
import {
  checkMs,
  patience,
  principalOf,
  unanswered,
  type InboundWorkDependencies,
  type Worked,
} from './inbound-terms.ts';

interface Dependencies extends Pick<
  InboundWorkDependencies,
  'db' | 'queue' | 'answers' | 'runs' | 'caller' | 'mail' | 'attachments'
> {
  /** Told after the commit. */
  onBegun: (due: DueEvent, runId: string) => Promise<void>;
}

/** An event that is to start a turn, read as far as can be, and the conversation that it goes on with. */
interface Said {
  due: DueEvent;
  event: InboundEvent;
  /** Of its conversation, the best first. */
  keys: string[];
  known: string | null;
  /** Whose answers are counted; null: nobody's. */
  counted: string | null;
  /** What is told of its attachments, line by line. */
  files: string[];
}

/** What an event is without a turn. */
interface NotSaid {
  state: 'ignored' | 'failed';
  reason: string;
}

/** From an event to its turn. Those that came behind it meanwhile, in the same conversation, are said with it. */
export function createInboundBegin(deps: Dependencies) {
  const { db, queue, answers } = deps;

  async function read(due: DueEvent, kind: ChannelKind, setup: ChannelSetup): Promise<Said | NotSaid> {
    if (due.request === null || due.body === null) {
      return { state: 'failed', reason: 'The request is not kept any more.' };
    }
    const request = { ...due.request, headers: new Map(due.request.headers), body: due.body };
    const parse = oneStep(() => kind.parse(request, setup));
    const sender = { orgId: due.orgId, id: due.channelId };
    const parsed = (await bySize(sender, due.body.length, parse)).events[due.place];
    if (!parsed) return { state: 'failed', reason: 'The request has no such event any more.' };
    const { sample } = due.request;
    const full = await readMail(parsed, setup, due.orgId, sample?.fetched ?? null);
    if ('problem' in full) return { state: 'failed', reason: `The mail could not be read: ${full.problem}.` };
    // What nobody wrote has nobody who waits for its answer, which stands in the conversation.
    const event = sample?.isAnswered === false ? { ...full.event, replyTo: unanswered } : full.event;
    if (event.ignore !== null) return { state: 'ignored', reason: event.ignore };
    const keys = conversationKeys(event, kind.name);
    const known = await answers.conversationOf(due.channelId, keys);
    if (known === null && event.onlyIfKnown) return { state: 'ignored', reason: 'not_addressed' };
    const counted = countedSender(event, kind.name);
    if (await hasEnoughAnswers(due.channelId, known, counted, kind, setup))
      return { state: 'ignored', reason: 'too_many_answers' };
    return { due, event, keys, known, counted, files: [] };
  }

  /** Loops that no header tells of end here: within one conversation, and those that begin another one each time. */
  async function hasEnoughAnswers(
    channelId: string,
    conversationId: string | null,
    sender: string | null,
    kind: ChannelKind,
    setup: ChannelSetup,
  ): Promise<boolean> {
    const inOne = capOf('maxAnswersPerHour', kind, setup);
    const toOne = capOf('maxAnswersPerSender', kind, setup);
    if (conversationId !== null && inOne !== null && (await answers.answeredLately(conversationId)) >= inOne)
      return true;
    return sender !== null && toOne !== null && (await answers.answeredToLately(channelId, sender)) >= toOne;
  }

  async function readMail(
    event: InboundEvent,
    setup: ChannelSetup,
    orgId: string,
    sampled: string | null,
  ): Promise<{ event: InboundEvent } | { problem: string }> {
    if (event.mail === null) return { event };
    const call = deps.mail.fetch(event, setup, Date.now());
    if (call === null) return deps.mail.complete(event, setup, orgId);
    if (sampled !== null) {
      const made = { status: 200, headers: new Map<string, string>(), body: Buffer.from(sampled) };
      return deps.mail.complete(deps.mail.withFetched(event, made), setup, orgId);
    }
    const reply = await deps.caller.call(call, { maxBytes: 40 * 1024 * 1024, timeoutMs: 30_000 });
    requireNotTooMany(reply);
    if (reply.status >= 300) throw new Error(`The mail could not be fetched: status ${reply.status}.`);
    return deps.mail.complete(deps.mail.withFetched(event, reply), setup, orgId);
  }

  /** Those behind it that are said in the same breath; what among them is not to be answered ends here. */
  async function joining(first: Said, kind: ChannelKind, setup: ChannelSetup): Promise<Said[]> {
    const { due } = first;
    if (!due.isFollowed || due.line === unread) return [];
    const joined: Said[] = [];
    let chars = first.event.text.length;
    for (const follower of await queue.followers(due, limits.joinedMessages - 1)) {
      const said = await read(follower, kind, setup);
      if ('state' in said) {
        await queue.settle(follower.id, said.state, said.reason);
        continue;
      }
      chars += said.event.text.length + 300;
      // One that belongs elsewhere, and all behind it, wait for a turn of their own.
      if (chars > limits.joinedChars || !isSameConversation(first, said)) break;
      joined.push(said);
    }
    return joined;
  }

  /** Mail is known to belong to a conversation when it has been read; false when it has to wait there. */
  async function isNextOfItsConversation({ due, known }: Said): Promise<boolean> {
    if (due.line !== unread || known === null) return true;
    const isNext = await queue.moveToLine(due.id, lineOf(known), patience);
    await queue.leftLine(due.id, unread);
    if (!isNext) {
      await queue.postpone(due.id, waitMs, null);
      await queue.unblock([due.id], patience);
    }
    return isNext;
  }

  /** Before the turn begins; what an attempt before has put there is not put there twice. */
  async function saveFiles({ due, event }: Said): Promise<string[]> {
    if (event.attachments.length === 0) return [];
    const patienceMs = limits.attachmentWaitMinutes * 60_000 - (Date.now() - due.receivedAt.getTime());
    const save = () => deps.attachments.save(due, event.messageKey ?? due.id, event.attachments, patienceMs);
    return deps.db.outside(save);
  }

  /** The messages, their conversation, their run and the states of their events: all of it, or nothing. */
  async function accept(
    said: Said[],
  ): Promise<{ first: Said; runId: string; replyTo: ReplyTo | null } | null> {
    return db.tx(async () => {
      const waiting = await queue.lockQueued(said.map(({ due }) => due.id));
      const own: Said[] = [];
      for (const one of said.filter(({ due }) => waiting.has(due.id))) {
        const key = one.event.messageKey;
        const { id, channelId } = one.due;
        const owner = key === null ? id : await queue.takeMessage(id, channelId, boundedKey(key));
        if (owner === id) own.push(one);
        else await queue.settleDuplicate(id, owner);
      }
      const [first, ...others] = own;
      if (!first) return null;
      const { due, event, known } = first;
      const last = own.at(-1)!;
      const accepted = await deps.runs.send(principalOf(due), {
        agentId: due.agentId,
        conversationId: known,
        content: contentOf(own),
        clientMessageId: event.messageKey === null ? null : boundedKey(event.messageKey),
        metadata: metadataOf(own),
        onBusy: 'enqueue',
        source: due.kind.split('.')[0]!,
        // The events' own rows, changed in this transaction, are what makes it happen once.
        idempotency: null,
      });
      const { conversationId, runId } = accepted;
      const keys = own.flatMap((one) => one.keys);
      if (keys.length > 0) await answers.rememberConversation(due.channelId, keys, conversationId);
      const line = event.conversationKey !== null && isOfMail(due) ? lineOf(conversationId) : due.line;
      const turn = { conversationId, runId, replyTo: last.event.replyTo, line };
      const [started, ...joined] = [first, ...others].map((one) => ({ id: one.due.id, sender: one.counted }));
      await queue.started([started!, ...joined], turn, checkMs);
      return { first, runId, replyTo: turn.replyTo };
    });
  }

  return async function begin(due: DueEvent, kind: ChannelKind, setup: ChannelSetup): Promise<Worked> {
    const first = await read(due, kind, setup);
    if ('state' in first) {
      await queue.settle(due.id, first.state, first.reason);
      return 'over';
    }
    if (!(await isNextOfItsConversation(first))) return 'over';
    const said = [first, ...(await joining(first, kind, setup))];
    for (const one of said) one.files = await saveFiles(one);
    const begun = await accept(said);
    if (begun === null) return 'over';
    if (due.line === unread) await queue.leftLine(due.id, unread);
    void deps.onBegun({ ...begun.first.due, replyTo: begun.replyTo }, begun.runId);
    return 'over';
  };
}

/** What is before it says when it goes on; this look is for one that could not. */
const waitMs = 20_000;

const lineOf = (conversationId: string) => `conversation:${conversationId}`;
const isOfMail = ({ line }: DueEvent) => line === unread || line?.startsWith('conversation:') === true;

/** A channel that was made before there was such a setting has its default. */
function capOf(name: string, kind: ChannelKind, { settings }: ChannelSetup): number | null {
  const cap = settings[name] ?? kind.settings.find((spec) => spec.name === name)?.default;
  return typeof cap === 'number' ? cap : null;
}

/** Whoever may be a machine that answers whatever comes: the address that a mail is answered to, and another bot. */
function countedSender({ replyTo, sender }: InboundEvent, kind: ChannelKindName): string | null {
  const address = kind === 'email' ? replyTo?.['to'] : sender?.isBot === true ? sender.id : null;
  return typeof address === 'string' && address !== '' ? boundedKey(address) : null;
}

function isSameConversation(one: Said, other: Said): boolean {
  // A person's message and a sample have no answer in common.
  if ((one.event.replyTo === unanswered) !== (other.event.replyTo === unanswered)) return false;
  if (one.known !== null || other.known !== null) return one.known === other.known;
  return one.event.conversationKey !== null && one.event.conversationKey === other.event.conversationKey;
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

/** Of several, each in a paragraph of its own; who speaks stands before it when it is not always the same. */
function contentOf(said: Said[]): string {
  const texts = said.map(({ event, files }) =>
    `${cleanText(event.text.slice(0, 180_000))}${attachmentNote(files)}`.trimStart(),
  );
  const senders = new Set(said.map(({ event }) => event.sender?.id ?? ''));
  if (senders.size === 1) return texts.join('\n\n');
  return said.map(({ event: { sender } }, index) => `${nameOf(sender)}: ${texts[index]}`).join('\n\n');
}

const nameOf = (sender: InboundEvent['sender']) =>
  cleanText((sender?.name ?? sender?.id ?? '').slice(0, 100)) || 'Somebody';

function metadataOf(said: Said[]): Record<string, unknown> {
  const [{ due, event }] = said as [Said, ...Said[]];
  const metadata = { channelId: due.channelId, eventId: due.id, kind: due.kind, sender: senderOf(event) };
  if (said.length === 1) return metadata;
  const messages = said.map((one) => ({ eventId: one.due.id, sender: senderOf(one.event) }));
  return { ...metadata, messages };
}

/** Bounded, since metadata is. */
const senderOf = ({ sender }: InboundEvent) =>
  sender && {
    id: cleanText(sender.id.slice(0, 200)),
    name: sender.name && cleanText(sender.name.slice(0, 200)),
    isBot: sender.isBot,
  };

const attachmentNote = (lines: string[]) =>
  lines.length === 0 ? '' : `\n\nAttachments:\n${lines.join('\n')}`;
