import type { InboundEvent } from '../../domain/ports/channel.ts';
import { event } from '../event.ts';
import { messageIds } from './addresses.ts';
import type { IncomingMail } from './provider.ts';

/** A mail that is yet to be read: what it says, and whether it is to be answered, `readMail` tells. */
export function mailEvent(mail: IncomingMail): InboundEvent {
  const id = mail.messageId === null ? null : (messageIds(mail.messageId)[0] ?? mail.messageId.trim());
  return event({
    kind: 'email.received',
    deliveryKey: mail.deliveryKey,
    messageKey: id ? `mail:${id}` : null,
    mail: mail.source,
  });
}
