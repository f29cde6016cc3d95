import type { IgnoreReason } from '../../domain/channel.ts';
import type {
  Attachment,
  ChannelSetup,
  HttpCall,
  HttpReply,
  InboundEvent,
  MailSource,
} from '../../domain/ports/channel.ts';
import { withoutEmpty } from '../event.ts';
import { isOn, listOf, textOf } from '../specs.ts';
import { bareAddress, displayName, isListed, messageIds, plusToken } from './addresses.ts';
import { answeredIds, headerOf, loopReason, type HeaderList } from './loops.ts';
import type { MailReader } from './read/mail-reader.ts';
import type { MailProblem, ReadText } from './read/message.ts';
import { resendFetcher } from './providers/resend.ts';
import { s3Fetcher } from './providers/ses.ts';

const fetchers = { resend: resendFetcher, s3: s3Fetcher };

/** What has to be asked for before the mail can be read; null when all is there. */
export function mailFetch(event: InboundEvent, setup: ChannelSetup, nowMs: number): HttpCall | null {
  const { mail } = event;
  return mail?.form === 'fetch' ? fetchers[mail.from].call(mail.what, setup, nowMs) : null;
}

/** With what a 2xx answer to `mailFetch` brought. */
export function withFetched(event: InboundEvent, reply: HttpReply): InboundEvent {
  const { mail } = event;
  return mail?.form === 'fetch' ? { ...event, mail: fetchers[mail.from].read(reply, mail) } : event;
}

export type CompletedMail = { event: InboundEvent; fullText: string } | { problem: MailProblem };

/** Reads a mail, and decides who sent it, which conversation it belongs to, and whether it may be answered. */
export async function completeMail(
  event: InboundEvent,
  setup: ChannelSetup,
  reader: Pick<MailReader, 'read'>,
): Promise<CompletedMail> {
  const { mail } = event;
  if (mail === null || mail.form === 'fetch') throw new Error('This event has no mail that can be read.');
  const result = await reader.read(
    mail.form === 'mime'
      ? { form: 'mime', raw: mail.raw }
      : { form: 'fields', text: mail.fields.text, html: mail.fields.html, stripped: mail.fields.stripped },
  );
  if (!result.ok) return { problem: result.reason };
  const headers = mail.form === 'mime' ? result.mail.headers : mail.fields.headers;
  return { event: withoutEmpty(fill(event, mail, headers, result.mail, setup)), fullText: result.mail.text };
}

function fill(
  event: InboundEvent,
  mail: MailSource,
  headers: HeaderList,
  read: ReadText,
  setup: ChannelSetup,
): InboundEvent {
  const address = (textOf(setup.settings, 'address') ?? '').toLowerCase();
  const from = headerOf(headers, 'from') ?? '';
  const sender = bareAddress(from);
  const id = messageIds(headerOf(headers, 'message-id') ?? '')[0] ?? null;
  const own = id === null ? event.messageKey : `mail:${id}`;
  const answered = answeredIds(headers);
  const subject = headerOf(headers, 'subject') ?? '';
  const tokens = mail.envelope.to
    .map((to) => plusToken(bareAddress(to), address))
    .filter((token) => token !== null);
  const replyAddress = bareAddress(headerOf(headers, 'reply-to') ?? '') || sender;
  return {
    ...event,
    mail: null,
    messageKey: own === null ? null : messageKey(own, sender, headerOf(headers, 'date')),
    // A subject never joins mails: strangers choose it.
    conversationKey: own,
    threadKeys: [...tokens.map((token) => `token:${token}`), ...answered.map((given) => `mail:${given}`)],
    text: subject === '' || answered.length > 0 ? read.stripped : `${subject}\n\n${read.stripped}`.trim(),
    sender: { id: sender, name: displayName(from), isBot: false },
    ignore: loopReason(headers, mail.envelope, address) ?? reasonByPolicy(sender, mail, headers, setup),
    attachments: attachmentsOf(mail, read),
    replyTo: {
      to: replyAddress,
      subject: subject.slice(0, 500),
      messageId: id,
      references: [...answered].reverse().slice(-20),
    },
  };
}

/** Some senders give each of their mails the same id, or that of somebody else's mail: those are other mails. */
const messageKey = (own: string, sender: string, date: string | null): string =>
  `${own}|${sender}|${Date.parse(date ?? '') || (date ?? '').trim()}`;

function reasonByPolicy(
  sender: string,
  mail: MailSource,
  headers: HeaderList,
  setup: ChannelSetup,
): IgnoreReason | null {
  if (sender === '') return 'bounce';
  const allowed = listOf(setup.settings, 'allowedSenders');
  if (allowed.length > 0 && !isListed(sender, allowed)) return 'sender_not_allowed';
  if (!isOn(setup.settings, 'requireDmarcPass')) return null;
  return isAuthenticated(mail, headers, setup) ? null : 'not_authenticated';
}

/** The provider's verdict, else the header of the one server that the channel trusts (RFC 8601, section 5). */
function isAuthenticated(mail: MailSource, headers: HeaderList, setup: ChannelSetup): boolean {
  if (mail.verdicts.dmarc !== null) return mail.verdicts.dmarc === 'pass';
  const trusted = textOf(setup.settings, 'authenticationServer');
  if (trusted === null) return false;
  return headers.some(
    ([name, value]) =>
      name.toLowerCase() === 'authentication-results' &&
      value.trim().toLowerCase().split(/[\s;]/)[0] === trusted.toLowerCase() &&
      /(^|[;\s])dmarc\s*=\s*pass\b/i.test(value.slice(0, 4_000)),
  );
}

function attachmentsOf(mail: MailSource, read: ReadText): Attachment[] {
  if (mail.form === 'fields') {
    return mail.fields.attachments.map(({ name, mediaType, content }) => ({
      name,
      mediaType,
      sizeBytes: content.at === 'inline' ? content.bytes.length : null,
      content,
    }));
  }
  return read.attachments.map(({ name, mediaType, bytes }) => ({
    name,
    mediaType,
    sizeBytes: bytes.length,
    content: { at: 'inline', bytes: Buffer.from(bytes) },
  }));
}
