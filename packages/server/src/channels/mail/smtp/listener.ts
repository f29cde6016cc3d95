import { readFileSync } from 'node:fs';
import { SMTPServer } from 'smtp-server';
import type { SMTPServerDataStream, SMTPServerSession } from 'smtp-server';
import { DomainError } from '../../../domain/errors.ts';
import { type BodyHold, Flight } from '../../../domain/flight.ts';
import { limits } from '../../../domain/limits.ts';
import type { Log } from '../../../domain/log.ts';
import type { InboundRequest } from '../../../domain/ports/channel.ts';
import { bareAddress } from '../addresses.ts';
import { createArrivals } from './arrivals.ts';
import { receivedCount } from './trace.ts';

export interface MailChannel {
  id: string;
  /** Of its agent. */
  orgId: string;
}

/** To whom mail goes; the inbox behind it. */
export interface SmtpInbox {
  /** The channel that takes mail to this address; null: nobody does. Rejects when that cannot be said now. */
  channelOf(address: string): Promise<MailChannel | null>;
  /** Resolves when the mail is durable. Throws DomainError. */
  take(channelId: string, request: InboundRequest): Promise<void>;
}

export interface SmtpListenerOptions {
  host: string;
  port: number;
  /** By which the listener calls itself. */
  name: string;
  /** PEM files; null: STARTTLS is not offered. */
  tls: { certFile: string; keyFile: string } | null;
  inbox: SmtpInbox;
  /** Mails that are being read or stored; default: `limits.smtpBodies`. */
  bodies?: Flight;
  log: Log;
}

/** An answer of SMTP (RFC 5321, section 4.2, with the codes of RFC 3463). */
class Reply extends Error {
  readonly responseCode: number;
  constructor(responseCode: number, text: string) {
    super(text);
    this.responseCode = responseCode;
  }
}

const idleMs = 60_000;
const nobody = () => new Reply(550, '5.1.1 Nobody takes mail to this address');
const busy = () => new Reply(451, '4.3.2 Too much comes in at once; send it again');

/**
 * Takes mail for the addresses of channels: no login, no relaying. A mail is answered with 250 once it is committed for
 * each of its recipients, with 4xx when it is to be sent again, with 5xx when it never will be taken.
 */
export function createSmtpListener(options: SmtpListenerOptions) {
  const { inbox, log, tls, bodies = new Flight(limits.smtpBodies) } = options;
  const arrivals = createArrivals();
  /** Of the first recipient of the mail that is under way; the others of it are seldom another organisation's. */
  const orgOf = new WeakMap<SMTPServerSession, string>();

  /** The whole mail; what is too large is read to its end, and kept in no memory. */
  async function read(stream: SMTPServerDataStream, hold: BodyHold): Promise<Buffer> {
    const chunks: Buffer[] = [];
    let size = 0;
    let refusal: Reply | null = null;
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > limits.smtpMessageBytes) {
        refusal = new Reply(552, `5.3.4 A mail may have at most ${limits.smtpMessageBytes} bytes`);
      } else refusal ??= refusalOf(hold, chunk.length);
      if (refusal) {
        chunks.length = 0;
        hold.drop();
      } else chunks.push(chunk);
    }
    if (refusal) throw refusal;
    return Buffer.concat(chunks);
  }

  async function receive(stream: SMTPServerDataStream, session: SMTPServerSession): Promise<void> {
    const hold = bodies.open(orgOf.get(session) ?? '');
    try {
      const body = await read(stream, hold);
      if (receivedCount(body) > limits.smtpHops) throw new Reply(554, '5.4.6 The mail goes round in circles');
      const from = session.envelope.mailFrom ? session.envelope.mailFrom.address : '';
      const recipients = session.envelope.rcptTo.map(({ address }) => address);
      for (const to of new Set(recipients.map(bareAddress))) {
        const channel = await inbox.channelOf(to);
        if (channel === null) throw nobody();
        await inbox.take(channel.id, requestOf(body, from, to));
      }
    } finally {
      hold.drop();
    }
  }

  async function known(address: string, session: SMTPServerSession): Promise<void> {
    const channel = await inbox.channelOf(bareAddress(address));
    if (channel === null) throw nobody();
    if (session.envelope.rcptTo.length === 0) orgOf.set(session, channel.orgId);
  }

  const server = new SMTPServer({
    name: options.name,
    banner: 'Berth',
    size: limits.smtpMessageBytes,
    maxClients: limits.smtpConnections,
    maxRecipients: limits.smtpRecipients,
    socketTimeout: idleMs,
    closeTimeout: 2_000,
    disabledCommands: tls ? ['AUTH'] : ['AUTH', 'STARTTLS'],
    authOptional: true,
    disableReverseLookup: true,
    hideREQUIRETLS: true,
    logger: false,
    ...(tls ? { cert: readFileSync(tls.certFile), key: readFileSync(tls.keyFile) } : {}),
    onConnect(session, done) {
      const isLetIn = arrivals.open(session.id, session.remoteAddress);
      done(isLetIn ? null : new Reply(421, '4.7.0 Too many connections from this address'));
    },
    onClose: (session) => arrivals.close(session.id),
    onMailFrom(_from, session, done) {
      const mayTake = arrivals.takeMail(session.remoteAddress);
      done(mayTake ? null : new Reply(451, '4.7.1 Too many mails from this address; send it again later'));
    },
    onRcptTo({ address }, session, done) {
      void tell(known(address, session), done);
    },
    onData(stream, session, done) {
      void tell(receive(stream, session), (refusal) => {
        if (refusal) log.debug('A mail was not taken.', { reply: refusal.message });
        done(refusal, '2.0.0 Taken');
      });
    },
  });
  server.on('error', (error) => log.debug('A connection of SMTP ended with an error.', { error }));

  return {
    /** Resolves with the port once it listens. */
    listen: () =>
      new Promise<number>((resolve, reject) => {
        server.server.once('error', reject);
        server.listen(options.port, options.host, () => {
          const address = server.server.address();
          resolve(typeof address === 'object' && address ? address.port : options.port);
        });
      }),
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

/** How the work ended, in words of SMTP. */
async function tell(work: Promise<void>, done: (refusal: Reply | null) => void): Promise<void> {
  let refusal: Reply | null = null;
  try {
    await work;
  } catch (error) {
    refusal = replyTo(error);
  }
  done(refusal);
}

function refusalOf(hold: BodyHold, bytes: number): Reply | null {
  try {
    hold.add(bytes);
    return null;
  } catch {
    return busy();
  }
}

/** As the channel's own kind reads it (`providers/mime.ts`). */
function requestOf(body: Buffer, from: string, to: string): InboundRequest {
  const headers = new Map([
    ['content-type', 'message/rfc822'],
    ['x-envelope-from', from],
    ['x-envelope-to', to],
  ]);
  return { method: 'POST', url: 'smtp:', headers, body };
}

const again = new Set(['unavailable', 'queue_full', 'rate_limited']);

function replyTo(error: unknown): Reply {
  if (error instanceof Reply) return error;
  if (!(error instanceof DomainError)) return busy();
  if (error.code === 'not_found') return nobody();
  return again.has(error.code) ? busy() : new Reply(554, '5.6.0 The mail cannot be taken');
}
