import type { ChannelSetup, InboundRequest, Verdict } from '../../domain/ports/channel.ts';
import { forged, genuine, sameText, secretsOf } from '../signing.ts';

/** For providers that sign nothing: the password of the URL (RFC 7617). The user name is free. */
export function verifyBasicAuth(request: InboundRequest, setup: ChannelSetup): Verdict {
  const encoded = /^Basic ([A-Za-z0-9+/=]{1,2000})$/i.exec(request.headers.get('authorization') ?? '')?.[1];
  if (!encoded) {
    return forged(
      'signature_missing',
      'Enter the URL with a password at the provider: https://berth:<webhookSecret>@….',
    );
  }
  const text = Buffer.from(encoded, 'base64').toString();
  const password = text.slice(text.indexOf(':') + 1);
  const secrets = secretsOf(setup.credentials['webhookSecret'], setup.previousSecret);
  return secrets.some((secret) => sameText(secret, password))
    ? genuine
    : forged('signature_wrong', 'The password in the URL does not fit; check the webhookSecret.');
}
