import type { ChannelMail } from '../../domain/ports/channel-mail.ts';
import { completeMail, mailFetch, withFetched } from './complete.ts';
import { createMailReaders } from './read/mail-readers.ts';
import { outgoingMail, threadKeyOf } from './reply.ts';

/** The mail of all channels, read in a few threads. */
export function openChannelMail(): ChannelMail & { close(): Promise<void> } {
  const readers = createMailReaders();
  return {
    fetch: mailFetch,
    withFetched,
    complete: (event, setup, orgId) =>
      completeMail(event, setup, { read: (input) => readers.read(orgId, input) }),
    sentKey: (answer, setup) => threadKeyOf(outgoingMail(answer, setup)),
    close: () => readers.close(),
  };
}
