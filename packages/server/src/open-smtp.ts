import { createSmtpListener } from './channels/mail/smtp/listener.ts';
import type { SmtpConfig } from './config-smtp.ts';
import type { Log } from './domain/log.ts';
import { unplussed } from './channels/mail/addresses.ts';
import type { Inbox } from './services/inbox.ts';
import type { ChannelStore } from './store/channels.ts';

/** The listener for mail, when the operator wants one (BERTH_SMTP_PORT). */
export function openSmtp(deps: {
  config: SmtpConfig | null;
  channels: Pick<ChannelStore, 'ofMailAddress'>;
  inbox: Pick<Inbox, 'take'>;
  log: Log;
}) {
  if (deps.config === null) return { start: async () => null, close: async () => undefined };
  const log = deps.log.child({ part: 'smtp' });
  const listener = createSmtpListener({
    ...deps.config,
    log,
    inbox: {
      channelOf: (address) => deps.channels.ofMailAddress(unplussed(address)),
      take: (channelId, request) => deps.inbox.take('email', channelId, request),
    },
  });
  return {
    /** Resolves with the port. */
    async start(): Promise<number | null> {
      const port = await listener.listen();
      log.info('Mail is taken over SMTP.', { host: deps.config!.host, port });
      return port;
    },
    close: () => listener.close(),
  };
}
