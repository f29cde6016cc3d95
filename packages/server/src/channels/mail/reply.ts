import type { Answer, ChannelSetup } from '../../domain/ports/channel.ts';
import { textOf } from '../specs.ts';
import { loopHeader } from './loops.ts';
import type { OutgoingMail } from './provider.ts';

/** An answer as mail: in the thread of the question, and marked so that no honest machine answers it (RFC 3834). */
export function outgoingMail(answer: Answer, setup: ChannelSetup): OutgoingMail {
  const { to, subject, messageId, references } = answer.replyTo;
  const from = textOf(setup.settings, 'from') ?? textOf(setup.settings, 'address') ?? '';
  const domain = from.slice(from.lastIndexOf('@') + 1).replace(/>.*$/, '');
  // The same for every attempt: a second copy is known as one, and a reply names it.
  const ownId = `<berth.${answer.outboxId}@${domain}>`;
  const chain = [
    ...(Array.isArray(references) ? references : []),
    ...(typeof messageId === 'string' ? [messageId] : []),
  ];
  return {
    from,
    to: String(to),
    subject: replySubject(String(subject ?? '')),
    text: answer.text,
    messageId: ownId,
    headers: [
      ['Message-ID', ownId],
      ...(typeof messageId === 'string' ? [['In-Reply-To', `<${messageId}>`] as [string, string]] : []),
      ...(chain.length > 0
        ? [['References', chain.map((id) => `<${id}>`).join(' ')] as [string, string]]
        : []),
      ['Auto-Submitted', 'auto-replied'],
      ['X-Auto-Response-Suppress', 'All'],
      [loopHeader, setup.channelId],
    ],
  };
}

/** Under which an answer's own id is looked for when somebody replies to it. */
export function threadKeyOf(mail: OutgoingMail): string {
  return `mail:${mail.messageId.replace(/^<|>$/g, '')}`;
}

function replySubject(subject: string): string {
  const one = subject.replace(/[\r\n]+/g, ' ').trim();
  return /^(re|aw|sv|antw)\s*:/i.test(one) ? one : `Re: ${one}`.trim();
}
