import type { IgnoreReason } from '../../domain/channel.ts';
import type { MailEnvelope } from '../../domain/ports/channel.ts';
import { bareAddress, messageIds } from './addresses.ts';

export type HeaderList = readonly (readonly [name: string, value: string])[];

export function headerOf(headers: HeaderList, name: string): string | null {
  const found = headers.find(([given]) => given.toLowerCase() === name);
  return found ? found[1] : null;
}

/** Marks every mail that we send, so that it is known when it comes back. */
export const loopHeader = 'X-Berth-Channel';

/**
 * Why answering a mail could go round in circles (RFC 3834, and what mail systems do that never read it), or null.
 * `own`: the channel's address.
 */
export function loopReason(headers: HeaderList, envelope: MailEnvelope, own: string): IgnoreReason | null {
  const value = (name: string) => (headerOf(headers, name) ?? '').trim().toLowerCase();
  const has = (name: string) => headerOf(headers, name) !== null;
  const from = bareAddress(headerOf(headers, 'from') ?? '');
  if (has(loopHeader.toLowerCase()) || (from !== '' && from === own)) return 'own_message';
  if (isBounce(value('content-type'), from, envelope.from)) return 'bounce';
  if (has('list-id') || has('list-unsubscribe') || has('list-post')) return 'mailing_list';
  const precedence = value('precedence');
  if (precedence === 'list' || precedence === 'bulk' || precedence === 'junk') return 'mailing_list';
  const submitted = value('auto-submitted').split(';')[0]!.trim();
  if (submitted !== '' && submitted !== 'no') return 'auto_reply';
  if (
    precedence === 'auto_reply' ||
    has('x-autoreply') ||
    has('x-autorespond') ||
    has('x-auto-response-suppress')
  ) {
    return 'auto_reply';
  }
  return null;
}

function isBounce(contentType: string, from: string, envelopeFrom: string | null): boolean {
  if (contentType.startsWith('multipart/report')) return true;
  if (envelopeFrom === '' || envelopeFrom === '<>') return true;
  return /^(mailer-daemon|postmaster)@/.test(from);
}

/** Ids of the messages that this one answers, the nearest first. */
export function answeredIds(headers: HeaderList): string[] {
  const direct = messageIds(headerOf(headers, 'in-reply-to') ?? '');
  const chain = messageIds(headerOf(headers, 'references') ?? '').reverse();
  return [...new Set([...direct, ...chain])].slice(0, 50);
}
