import { forged } from '../../signing.ts';
import type { MailReceiver } from '../provider.ts';
import { mimeReceiver } from './mime.ts';

/**
 * Mail that the service's own SMTP listener has taken (`smtp/listener.ts`). Nothing proves who sent it: what comes over
 * HTTP is refused, and the listener hands over what it has by itself.
 */
export const smtpReceiver: MailReceiver = {
  needs: [],
  verify: () => forged('signature_missing', 'This channel takes mail over SMTP alone.'),
  parse: mimeReceiver.parse,
};
