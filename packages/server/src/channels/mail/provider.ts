import type {
  Answer,
  ChannelSetup,
  Documents,
  HttpCall,
  HttpReply,
  InboundRequest,
  MailSource,
  ParsedRequest,
  Verdict,
} from '../../domain/ports/channel.ts';

/** A service that takes mail in and hands it on. */
export interface MailReceiver {
  /** Credentials that are needed to check what it sends. */
  needs: readonly string[];
  verify(request: InboundRequest, setup: ChannelSetup, nowMs: number, documents: Documents): Verdict;
  parse(request: InboundRequest, setup: ChannelSetup): ParsedRequest;
}

/** What is told about a mail before it is read. */
export interface IncomingMail {
  deliveryKey: string;
  messageId: string | null;
  source: MailSource;
}

/** An answer as a mail, whoever sends it. */
export interface OutgoingMail {
  from: string;
  to: string;
  subject: string;
  text: string;
  /** Among them Message-ID, In-Reply-To and References, with angle brackets. */
  headers: [name: string, value: string][];
  messageId: string;
}

/** A service that sends mail. */
export interface MailSender {
  needs: readonly string[];
  send(
    mail: OutgoingMail,
    answer: Answer,
    setup: ChannelSetup,
    nowMs: number,
  ): {
    call: HttpCall;
    repeat: 'same' | 'again';
    lookup: HttpCall | null;
    mark: string;
  };
  /** Where its answer has the id of what it sent. */
  idPath: readonly string[];
}

export interface MailFetcher {
  call(what: Record<string, string>, setup: ChannelSetup, nowMs: number): HttpCall;
  read(reply: HttpReply, source: MailSource): MailSource;
}
