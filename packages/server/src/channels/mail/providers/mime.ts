import type { ChannelSetup, InboundRequest, Verdict } from '../../../domain/ports/channel.ts';
import { DomainError, invalid } from '../../../domain/errors.ts';
import { bearerText } from '../../bearer-token.ts';
import { mediaType } from '../../body.ts';
import { emptyAnswer } from '../../event.ts';
import { forged, genuine, sameText, secretsOf, sha256 } from '../../signing.ts';
import { standardHeaders, verifyStandard } from '../../standard-webhooks.ts';
import { unfoldHeaders } from '../headers.ts';
import { headerOf, type HeaderList } from '../loops.ts';
import { mailEvent } from '../mail-event.ts';
import type { MailReceiver } from '../provider.ts';

/**
 * The message itself, as a mail server or a worker at the edge of one posts it: `Content-Type: message/rfc822`, signed as
 * Standard Webhooks or with `Authorization: Bearer`, the envelope in X-Envelope-From and X-Envelope-To.
 */
export const mimeReceiver: MailReceiver = {
  needs: ['webhookSecret'],
  verify: verifyMime,
  parse(request) {
    const { type } = mediaType(request);
    if (type !== 'message/rfc822') {
      throw new DomainError('unsupported_media_type', 'This channel takes message/rfc822.');
    }
    if (request.body.length === 0) throw invalid('body', 'must be a message.');
    const head =
      request.body
        .subarray(0, 64 * 1024)
        .toString('latin1')
        .split(/\r?\n\r?\n/, 1)[0] ?? '';
    const headers = unfoldHeaders(head);
    const content = request.body.subarray(head.length);
    // Each server that a mail without an id comes through says something else of who sent it.
    const messageId = headerOf(headers, 'message-id') || hashOf(headers, ['from', 'date'], content);
    const to = (request.headers.get('x-envelope-to') ?? '')
      .split(',')
      .map((text) => text.trim())
      .filter(Boolean);
    // One message may be for several recipients, each in a delivery of its own.
    const deliveryKey =
      standardHeaders(request)?.id ?? `${hashOf(headers, telling, content)}:${to.join(',')}`;
    const source = {
      form: 'mime' as const,
      raw: request.body,
      envelope: { from: request.headers.get('x-envelope-from') ?? null, to },
      verdicts: { spf: null, dkim: null, dmarc: null },
    };
    return { answer: emptyAnswer, events: [mailEvent({ deliveryKey, messageId, source })] };
  },
};

/**
 * The same in each copy of a mail, whichever servers it came through. Its id alone would not do: whoever writes another
 * mail with the same one, or forges the same mail, must not keep this one from being heard.
 */
const telling = ['message-id', 'from', 'date', 'authentication-results'];

function hashOf(headers: HeaderList, names: string[], content: Buffer): string {
  const told = headers.filter(([name]) => names.includes(name.toLowerCase()));
  return sha256(JSON.stringify(told), content).toString('hex');
}

function verifyMime(request: InboundRequest, setup: ChannelSetup, nowMs: number): Verdict {
  const secrets = secretsOf(setup.credentials['webhookSecret'], setup.previousSecret);
  if (standardHeaders(request)) return verifyStandard(request, secrets, nowMs);
  const token = bearerText(request);
  if (!token) return forged('signature_missing', 'Sign as Standard Webhooks, or send Authorization: Bearer.');
  return secrets.some((secret) => sameText(secret, token))
    ? genuine
    : forged('signature_wrong', 'The bearer token is not the webhookSecret of this channel.');
}
