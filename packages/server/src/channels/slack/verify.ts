import type { ChannelSetup, InboundRequest, Verdict } from '../../domain/ports/channel.ts';
import { forged, genuine, readSeconds, secretsOf, signedInHex, staleness } from '../signing.ts';

/** `v0=` and HMAC-SHA256 in hex over `v0:{timestamp}:{body}` (docs.slack.dev, "Verifying requests from Slack"). */
export function verifySlack(request: InboundRequest, setup: ChannelSetup, nowMs: number): Verdict {
  const signature = request.headers.get('x-slack-signature');
  const timestamp = request.headers.get('x-slack-request-timestamp');
  if (!signature || !timestamp) {
    return forged(
      'signature_missing',
      'The headers X-Slack-Signature and X-Slack-Request-Timestamp are needed.',
    );
  }
  const stale = staleness(readSeconds(timestamp), nowMs, 300);
  if (stale) return stale;
  if (!signature.startsWith('v0=')) {
    return forged('signature_malformed', 'X-Slack-Signature must begin with "v0=".');
  }
  const secrets = secretsOf(setup.credentials['signingSecret'], setup.previousSecret);
  return signedInHex(secrets, signature.slice(3), `v0:${timestamp}:`, request.body)
    ? genuine
    : forged('signature_wrong', 'X-Slack-Signature does not fit; check the signing secret of the Slack app.');
}
