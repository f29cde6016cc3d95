import type { InboundRequest, Verdict } from '../domain/ports/channel.ts';
import { forged, genuine, hmac, readSeconds, sameBytes, staleness } from './signing.ts';

const windowSeconds = 300;

/** The bytes of a secret: base64 after `whsec_` (Standard Webhooks 1.0.0, "Signature scheme"). */
export function secretBytes(secret: string): Buffer {
  return Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
}

/** Headers `webhook-…`, or `svix-…` as senders have them who came before the standard. */
export function standardHeaders(
  request: InboundRequest,
): { id: string; timestamp: string; signature: string } | null {
  for (const prefix of ['webhook', 'svix']) {
    const id = request.headers.get(`${prefix}-id`);
    const timestamp = request.headers.get(`${prefix}-timestamp`);
    const signature = request.headers.get(`${prefix}-signature`);
    if (id && timestamp && signature) return { id, timestamp, signature };
  }
  return null;
}

/** Any one `v1` signature by any one secret is enough: so both sides can rotate. */
export function verifyStandard(request: InboundRequest, secrets: string[], nowMs: number): Verdict {
  const found = standardHeaders(request);
  if (!found) {
    return forged(
      'signature_missing',
      'The headers webhook-id, webhook-timestamp and webhook-signature are needed.',
    );
  }
  const stale = staleness(readSeconds(found.timestamp), nowMs, windowSeconds);
  if (stale) return stale;
  // A bound on the work that one request can ask for.
  const signatures = found.signature
    .split(' ')
    .slice(0, 16)
    .filter((text) => text.startsWith('v1,'))
    .map((text) => Buffer.from(text.slice(3), 'base64'));
  const isGenuine = secrets.some((secret) => {
    const expected = hmac('sha256', secretBytes(secret), `${found.id}.${found.timestamp}.`, request.body);
    return signatures.some((signature) => sameBytes(signature, expected));
  });
  return isGenuine
    ? genuine
    : forged('signature_wrong', 'No signature of the list fits; check the signing secret.');
}

/** Headers for a request of ours. `seconds`: Unix time. */
export function signStandard(
  id: string,
  seconds: number,
  body: string,
  secret: string,
): Record<string, string> {
  const signature = hmac('sha256', secretBytes(secret), `${id}.${seconds}.${body}`).toString('base64');
  return { 'webhook-id': id, 'webhook-timestamp': String(seconds), 'webhook-signature': `v1,${signature}` };
}
