import type { ChannelKindName, IgnoreReason } from '../channel.ts';

/** A request as it came in. Nothing has been parsed: signatures cover the raw bytes. */
export interface InboundRequest {
  method: string;
  /** As the sender sees it (the configured base URL, not the Host header), with the query. */
  url: string;
  /** Lower-case names; several of one name joined by `, `. */
  headers: ReadonlyMap<string, string>;
  body: Buffer;
}

export type SettingValue = string | number | boolean | string[];

/** The channel that a request is for. Credentials are decrypted; they go to nothing but the kind's own functions. */
export interface ChannelSetup {
  channelId: string;
  settings: Readonly<Record<string, SettingValue>>;
  credentials: Readonly<Record<string, string>>;
  /** The signing credential before its last rotation, as long as it still holds. */
  previousSecret: string | null;
  /** In place of the provider's own API address: tests, private clouds, self-hosted servers. No slash at the end. */
  apiBaseUrl: string | null;
}

/** Texts of certificates and key sets by their URL, fetched by the caller over the guarded client. */
export type Documents = ReadonlyMap<string, string>;

export type Forgery = 'signature_missing' | 'signature_wrong' | 'signature_stale' | 'signature_malformed';

export type Verdict =
  | { verdict: 'genuine' }
  /** `message` says to whoever sets the channel up what is wrong; it holds nothing secret. */
  | {
      verdict: 'forged';
      reason: Forgery;
      message: string;
      /** The URL of a document that does not name the key; another text of it may. */
      unnamedIn?: string;
    }
  /** Ask again with the text of this URL, which the kind has already pinned to the provider's hosts. */
  | { verdict: 'needs_document'; url: string };

/** What the sender gets. Bodies are empty unless the provider asks for one. */
export interface InboundAnswer {
  status: number;
  headers: Record<string, string>;
  body: string;
}

export interface Sender {
  /** As the provider identifies the person; never a display name. */
  id: string;
  name: string | null;
  isBot: boolean;
}

export interface Attachment {
  name: string;
  mediaType: string;
  sizeBytes: number | null;
  /** Where the bytes are: in the delivery itself, or behind a request. */
  content: { at: 'inline'; bytes: Buffer } | CalledContent;
}

export interface CalledContent {
  at: 'call';
  call: HttpCall;
  /** For an answer that says where the bytes are; null when it is the bytes. */
  next?: (reply: HttpReply) => CalledContent | null;
}

export interface ParsedRequest {
  answer: InboundAnswer;
  events: InboundEvent[];
  /** Completes a handshake, such as the confirmation of a subscription. */
  followUp?: HttpCall;
}

/** JSON that `reply` of the same kind understands; stored with the event. */
export type ReplyTo = Readonly<Record<string, string | number | boolean | string[] | null>>;

export interface InboundEvent {
  /** `slack.message`, `email.received`, `github.issue_comment` … */
  kind: string;
  /** The same for every attempt to deliver this event; unique within the channel. */
  deliveryKey: string;
  /** The same for every event that tells of this one human message; null for what is no message. */
  messageKey: string | null;
  /** Events of one key are one conversation; null for what starts none. */
  conversationKey: string | null;
  /** Keys of conversations that this one continues when it knows one of them, the best first (mail). */
  threadKeys: string[];
  /** Taken only when its conversation exists already: a thread goes on without another mention. */
  onlyIfKnown: boolean;
  text: string;
  sender: Sender | null;
  ignore: IgnoreReason | null;
  attachments: Attachment[];
  replyTo: ReplyTo | null;
  /** When the sender says that this is not its first attempt. Never a reason to drop: it may be the only copy. */
  retry: { attempt: number; reason: string | null } | null;
  /** Mail whose text still has to be read or fetched: see channels/mail. Its `text` is empty until then. */
  mail: MailSource | null;
  /**
   * JSON that is read as this very event and no other; asked for when a request holds several, so that each is kept once.
   * Null: the request holds no other.
   */
  alone: (() => object) | null;
}

/** Mail as a provider delivers it. `fetch` names what the provider has to be asked for (channels/mail/fetch.ts). */
export type MailSource = { envelope: MailEnvelope; verdicts: MailVerdicts } & (
  | { form: 'mime'; raw: Buffer }
  | { form: 'fields'; fields: MailFields }
  | { form: 'fetch'; from: 'resend' | 's3'; what: Record<string, string> }
);

export interface MailEnvelope {
  /** Empty for bounces, null when the provider does not tell. */
  from: string | null;
  to: string[];
}

export interface MailVerdicts {
  spf: string | null;
  dkim: string | null;
  dmarc: string | null;
}

export interface MailFields {
  headers: [name: string, value: string][];
  text: string | null;
  html: string | null;
  /** The reply without what it quotes, when the provider cut it. */
  stripped: string | null;
  attachments: { name: string; mediaType: string; content: Attachment['content'] }[];
}

/** A request to a provider, as data. */
export interface HttpCall {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  url: string;
  headers: Record<string, string>;
  body: string | null;
  /** Its access token becomes `Authorization: Bearer …`; kept until it expires. */
  token: TokenGrant | null;
}

export interface TokenGrant {
  cacheKey: string;
  call: HttpCall;
  /** Field of the JSON answer that holds the token. */
  tokenField: string;
}

export interface Answer {
  /** Text in the Markdown of models. */
  text: string;
  replyTo: ReplyTo;
  /** Id of the outbox row: marks what is sent, so that it can be found again after a crash. */
  outboxId: string;
}

/** One message to send; a long answer has several, sent in order. */
export interface ReplyStep {
  call: HttpCall;
  /** What a second send of the very same call does: nothing (`same`), or a second message (`again`). */
  repeat: 'same' | 'again';
  /** Asks the provider whether the message arrived although its answer did not, page by page (`nextLookup`); null when it cannot tell. */
  lookup: HttpCall | null;
  /** A text that stands in an answer to the look-up exactly when the message arrived. */
  mark: string;
  /** In place of the mark, for a look-up that has to be read. `beganAt`: when the message may have been sent. */
  hasArrived?: (reply: HttpReply, beganAt: Date) => boolean;
  /** Makes this message of one that has grown; to do that twice changes nothing. Absent: this one never grows. */
  change?: (externalId: string) => HttpCall;
}

export interface HttpReply {
  status: number;
  headers: ReadonlyMap<string, string>;
  /** Read up to a bound. */
  body: Buffer;
}

export type SendOutcome =
  | { outcome: 'sent'; externalId: string | null }
  /** `afterMs` is the provider's own word, else null. `isTooMany`: it asks for fewer at once, which is no fault of this one. */
  | { outcome: 'retry'; afterMs: number | null; reason: string; isTooMany?: boolean }
  /** `isGone`: what was to be changed is not there any more. */
  | { outcome: 'failed'; reason: string; isGone?: boolean }
  /** It may have been sent, and nobody can find out. */
  | { outcome: 'doubtful'; reason: string };

/**
 * An answer that grows while the agent speaks: its first message is sent early, with the mark of its place, and changed as
 * more is said. Best effort: what counts is the end, which is the `change` of the step, or `breakOff`.
 */
export interface AnswerStream {
  /** Between two calls for one channel at least. */
  intervalMs: number;
  isOn(setup: ChannelSetup): boolean;
  /** Null when this answer cannot grow where it goes, or has no text yet. */
  start(answer: Answer, setup: ChannelSetup): HttpCall | null;
  update(answer: Answer, externalId: string, setup: ChannelSetup): HttpCall;
  /** The last state of one whose rest will never come; `answer` has what was said. */
  breakOff(answer: Answer, externalId: string, setup: ChannelSetup): HttpCall;
  /** Asks which messages are there, page by page, for `find`. */
  lookup(answer: Answer, setup: ChannelSetup): HttpCall;
  /** The first message of the answer, among those; `isGrowing`: it is not the whole one. */
  find(reply: HttpReply, answer: Answer): { externalId: string; isGrowing: boolean } | null;
}

export interface CredentialSpec {
  name: string;
  required: boolean;
  /** What it is and where it is found, one sentence. */
  description: string;
}

export interface SettingSpec {
  name: string;
  /** `calledUrl`: the service connects there, so that the URL guard has to let it through. `namedUrl`: it is only compared. */
  type: 'text' | 'texts' | 'flag' | 'count' | 'calledUrl' | 'namedUrl' | readonly string[];
  required: boolean;
  default: SettingValue | null;
  description: string;
}

/** One kind of outside system. All functions are pure: bytes in, data out. */
export interface ChannelKind {
  readonly name: ChannelKindName;
  readonly bodyBytes: number;
  readonly methods: readonly string[];
  /** What to answer when the inbox is full, so that the sender tries again. */
  readonly whenBusy: 429 | 503;
  /** `reserved`: the sender never tries again, so that capacity is kept back for it. */
  lane(request: InboundRequest): 'ordinary' | 'reserved';
  /** Between two messages to one conversation at least, by the provider's rules. */
  readonly paceMs: number;
  readonly credentials: readonly CredentialSpec[];
  readonly settings: readonly SettingSpec[];
  /**
   * Which credential `rotate-secret` changes, and how the service makes one; `given` ones come from the provider. Null
   * when the provider signs with keys of its own.
   */
  signing(
    settings: ChannelSetup['settings'],
  ): { credential: string; made: 'whsec' | 'token' | 'given' } | null;
  /**
   * Where a credential is sent, or what proves that one holds it: a text that is another one for another place. Null: it
   * leaves the service for nowhere. What is stored goes to no other place than the one that it was given for.
   */
  sentTo(credential: string, setup: Pick<ChannelSetup, 'settings' | 'apiBaseUrl'>): string | null;
  /** Combinations that the lists above cannot say; throws `invalid_request`. */
  check(setup: Pick<ChannelSetup, 'settings' | 'credentials'>): void;
  verify(request: InboundRequest, setup: ChannelSetup, nowMs: number, documents: Documents): Verdict;
  /**
   * Of a genuine request. No events: a handshake, and nothing else, since what is acknowledged is kept. Throws
   * `invalid_json`, `invalid_request` or `unsupported_media_type` for what no honest sender sends.
   */
  parse(request: InboundRequest, setup: ChannelSetup): ParsedRequest;
  /**
   * Names, in lower case, of headers that `parse` reads because the settings say so. They are kept with the event even
   * when they are called as what proves the sender: another reading has to come to the same keys.
   */
  headersRead?(settings: ChannelSetup['settings']): string[];
  /** Built anew for every attempt, since `nowMs` goes into signatures. Empty when the channel has no way to answer. */
  reply(answer: Answer, setup: ChannelSetup, nowMs: number): ReplyStep[];
  readReply(reply: HttpReply): SendOutcome;
  /**
   * Asks for what the answer to a look-up (`asked`, or the one before) has left out; null: that was all, or the rest is
   * from before `beganAt`. Absent: an answer is always all.
   */
  nextLookup?(asked: HttpCall, reply: HttpReply, beganAt: Date): HttpCall | null;
  readonly stream: AnswerStream | null;
}
