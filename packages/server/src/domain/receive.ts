import { DomainError } from './errors.ts';
import { atOnce, type Sliced } from './slices.ts';
import type {
  ChannelKind,
  ChannelSetup,
  Documents,
  Forgery,
  InboundRequest,
  ParsedRequest,
} from './ports/channel.ts';

export type Received =
  /** Sent by whom it says; `parsed.events` is empty for a handshake. */
  | { result: 'accepted'; parsed: ParsedRequest }
  | { result: 'needs_document'; url: string }
  /** Tells the sender nothing but that; `message` is for whoever sets the channel up. */
  | { result: 'forged'; reason: Forgery; message: string; unnamedIn: string | null };

/**
 * A request from bytes to events: the size first, then the signature, and only then a parser. Throws DomainError for
 * what is too large, of the wrong method or type, or not what this kind of system sends.
 */
export function* receiving(
  kind: ChannelKind,
  request: InboundRequest,
  setup: ChannelSetup,
  nowMs: number,
  documents: Documents,
): Sliced<Received> {
  if (!kind.methods.includes(request.method)) {
    throw new DomainError('method_not_allowed', `This address takes ${kind.methods.join(' and ')}.`);
  }
  if (request.body.length > kind.bodyBytes) {
    throw new DomainError('body_too_large', `The body may have at most ${kind.bodyBytes} bytes.`);
  }
  const verdict = kind.verify(request, setup, nowMs, documents);
  switch (verdict.verdict) {
    case 'forged':
      return {
        result: 'forged',
        reason: verdict.reason,
        message: verdict.message,
        unnamedIn: verdict.unnamedIn ?? null,
      };
    case 'needs_document':
      return { result: 'needs_document', url: verdict.url };
    case 'genuine':
      yield;
      return { result: 'accepted', parsed: kind.parse(request, setup) };
  }
}

/** The same without giving way. */
export const receive = (...given: Parameters<typeof receiving>): Received => atOnce(receiving(...given));
