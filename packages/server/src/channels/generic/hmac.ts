import type { ChannelSetup, InboundRequest, Verdict } from '../../domain/ports/channel.ts';
import { forged, genuine, hmac, readSeconds, sameBytes, sameText, staleness } from '../signing.ts';
import { textOf } from '../specs.ts';

const windowSeconds = 300;

export function signedTime(request: InboundRequest, setup: ChannelSetup): string | null {
  const name = textOf(setup.settings, 'timestampHeader');
  return name === null ? null : (request.headers.get(name.toLowerCase()) ?? null);
}

/** An HMAC of the body, or the secret itself, in a header that the user names. */
export function verifyHmac(
  request: InboundRequest,
  setup: ChannelSetup,
  secrets: string[],
  nowMs: number,
): Verdict {
  const name = textOf(setup.settings, 'signatureHeader') ?? '';
  const value = request.headers.get(name.toLowerCase());
  if (!value) return forged('signature_missing', `The header ${name} is needed.`);
  const prefix = textOf(setup.settings, 'signaturePrefix') ?? '';
  if (!value.startsWith(prefix)) return forged('signature_malformed', `${name} must begin with "${prefix}".`);
  const given = value.slice(prefix.length).trim();
  if (textOf(setup.settings, 'scheme') === 'token') {
    return secrets.some((secret) => sameText(secret, given)) ? genuine : wrong(name);
  }
  const parts: (string | Buffer)[] = [request.body];
  if (textOf(setup.settings, 'timestampHeader') !== null) {
    const time = signedTime(request, setup);
    if (time === null)
      return forged('signature_missing', 'The header with the time of the signature is needed.');
    const stale = staleness(readSeconds(time), nowMs, windowSeconds);
    if (stale) return stale;
    parts.unshift(`${time}.`);
  }
  const encoding = textOf(setup.settings, 'encoding') === 'base64' ? 'base64' : 'hex';
  if (encoding === 'hex' && !/^([0-9a-f]{2})+$/i.test(given)) {
    return forged('signature_malformed', `${name} must be hexadecimal.`);
  }
  const algorithm = algorithmOf(textOf(setup.settings, 'algorithm'));
  const bytes = Buffer.from(given, encoding);
  return secrets.some((secret) => sameBytes(hmac(algorithm, secret, ...parts), bytes))
    ? genuine
    : wrong(name);
}

/** Headers for an answer, signed in the same way as what comes in. `seconds`: Unix time. */
export function signHmac(
  setup: ChannelSetup,
  secret: string,
  seconds: number,
  body: string,
): Record<string, string> {
  const name = (textOf(setup.settings, 'signatureHeader') ?? 'x-signature').toLowerCase();
  const prefix = textOf(setup.settings, 'signaturePrefix') ?? '';
  if (textOf(setup.settings, 'scheme') === 'token') return { [name]: prefix + secret };
  const timeHeader = textOf(setup.settings, 'timestampHeader');
  const encoding = textOf(setup.settings, 'encoding') === 'base64' ? 'base64' : 'hex';
  const text = timeHeader === null ? body : `${seconds}.${body}`;
  const signature = hmac(algorithmOf(textOf(setup.settings, 'algorithm')), secret, text).toString(encoding);
  const time = timeHeader === null ? {} : { [timeHeader.toLowerCase()]: String(seconds) };
  return { ...time, [name]: prefix + signature };
}

const wrong = (name: string): Verdict =>
  forged('signature_wrong', `${name} does not fit; check the secret, the algorithm and the encoding.`);

function algorithmOf(text: string | null): 'sha1' | 'sha256' | 'sha512' {
  return text === 'sha1' || text === 'sha512' ? text : 'sha256';
}
