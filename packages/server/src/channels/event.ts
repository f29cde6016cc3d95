import type { InboundAnswer, InboundEvent, InboundRequest } from '../domain/ports/channel.ts';

export const emptyAnswer: InboundAnswer = { status: 200, headers: {}, body: '' };

export function jsonAnswer(value: unknown): InboundAnswer {
  return { status: 200, headers: { 'content-type': 'application/json' }, body: JSON.stringify(value) };
}

export function textAnswer(body: string, type = 'text/plain; charset=utf-8'): InboundAnswer {
  return { status: 200, headers: { 'content-type': type }, body };
}

/** An event with everything that most have in common filled in. */
export function event(
  given: Pick<InboundEvent, 'kind' | 'deliveryKey'> & Partial<InboundEvent>,
): InboundEvent {
  return {
    messageKey: null,
    conversationKey: null,
    threadKeys: [],
    onlyIfKnown: false,
    text: '',
    sender: null,
    ignore: null,
    attachments: [],
    replyTo: null,
    retry: null,
    mail: null,
    alone: null,
    ...given,
  };
}

/** A message without text and without attachments has nothing to answer. */
export function withoutEmpty(found: InboundEvent): InboundEvent {
  const isEmpty = found.text.trim() === '' && found.attachments.length === 0 && found.mail === null;
  return found.ignore === null && isEmpty ? { ...found, ignore: 'empty' } : found;
}

/** Names of event types become a part of `kind`, so only plain ones do. */
export function plainName(name: string | null | undefined): string {
  return name && /^[a-z0-9_.-]{1,60}$/i.test(name) ? name.toLowerCase() : 'unknown';
}

export function header(request: InboundRequest, name: string): string | null {
  return request.headers.get(name) ?? null;
}
