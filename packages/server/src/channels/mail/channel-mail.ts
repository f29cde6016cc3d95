import type { ChannelMail } from '../../domain/ports/channel-mail.ts';
import { completeMail, mailFetch, withFetched } from './complete.ts';
import { createMailReader } from './read/mail-reader.ts';
import { outgoingMail, threadKeyOf } from './reply.ts';

/** The mail of all channels, read in one thread. */
export function openChannelMail(): ChannelMail & { close(): Promise<void> } {
  const reader = createMailReader();
  return {
    fetch: mailFetch,
    withFetched,
    complete: (event, setup) => completeMail(event, setup, reader),
    sentKey: (answer, setup) => threadKeyOf(outgoingMail(answer, setup)),
    close: () => reader.close(),
  };
}
