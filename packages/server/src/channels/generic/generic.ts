import { DomainError, invalid } from '../../domain/errors.ts';
import type {
  Answer,
  ChannelKind,
  ChannelSetup,
  InboundEvent,
  InboundRequest,
  ReplyStep,
} from '../../domain/ports/channel.ts';
import { decode, isJsonType, mediaType, readFormBody, readJsonBody } from '../body.ts';
import { jsonCall, readStatus } from '../call.ts';
import { emptyAnswer, event, plainName, withoutEmpty } from '../event.ts';
import { secretsOf, sha256 } from '../signing.ts';
import { signStandard, standardHeaders, verifyStandard } from '../standard-webhooks.ts';
import { isOn, required, setting, textOf } from '../specs.ts';
import { signedTime, signHmac, verifyHmac } from './hmac.ts';
import { fillTemplate, headersIn } from './template.ts';

/** What a payload may become of as text for the agent. */
const textChars = 100_000;
const headerName = /^[a-z0-9-]{1,100}$/i;

/** Any system that signs its webhooks: Standard Webhooks, or an HMAC or a token in a header of the user's choice. */
export const generic: ChannelKind = {
  name: 'generic',
  bodyBytes: 10 * 1024 * 1024,
  methods: ['POST'],
  whenBusy: 503,
  lane: () => 'ordinary',
  paceMs: 0,
  credentials: [required('secret', 'What the sender signs with; made by the service when left out.')],
  settings: [
    setting(
      'scheme',
      ['standard', 'hmac', 'token'],
      'Standard Webhooks, an HMAC of the body in a header, or the secret itself in a header.',
      'standard',
    ),
    setting('signatureHeader', 'text', 'The header with the HMAC or the token, such as X-Signature.'),
    setting('signaturePrefix', 'text', 'What stands before the HMAC, such as sha256=.'),
    setting('algorithm', ['sha256', 'sha1', 'sha512'], 'Of the HMAC.', 'sha256'),
    setting('encoding', ['hex', 'base64'], 'Of the HMAC.', 'hex'),
    setting(
      'timestampHeader',
      'text',
      'A header with Unix seconds; the HMAC then covers "{timestamp}.{body}".',
    ),
    setting('type', 'text', 'Template of the event type: {{type}}.', '{{type}}'),
    setting('text', 'text', 'Template of the text for the agent; left out, the whole payload.'),
    setting(
      'conversation',
      'text',
      'Template of what joins events into one conversation; left out, each is its own.',
    ),
    setting(
      'deliveryId',
      'text',
      'Template of the id of a delivery; left out, webhook-id or the hash of the body.',
    ),
    setting(
      'messageId',
      'text',
      'Template of the id of what the event tells of, when several events can tell of it.',
    ),
    setting('sender', 'text', 'Template of who sent it.'),
    setting(
      'skipEmpty',
      'flag',
      'Whether events whose text is empty are ignored, instead of given whole.',
      false,
    ),
    setting(
      'replyUrl',
      'calledUrl',
      'Where answers are posted, signed in the way and with the secret of the channel.',
    ),
  ],
  signing: (settings) => ({
    credential: 'secret',
    made: schemeOf(settings) === 'standard' ? 'whsec' : 'token',
  }),
  // A signature shows nothing of the secret; with the scheme "token" the answer bears the secret itself.
  sentTo(credential, { settings }) {
    const replyUrl = textOf(settings, 'replyUrl');
    if (credential !== 'secret' || replyUrl === null || schemeOf(settings) !== 'token') return null;
    return URL.canParse(replyUrl) ? new URL(replyUrl).origin : replyUrl;
  },
  check,
  verify(request, setup, nowMs) {
    const secrets = secretsOf(setup.credentials['secret'], setup.previousSecret);
    return schemeOf(setup.settings) === 'standard'
      ? verifyStandard(request, secrets, nowMs)
      : verifyHmac(request, setup, secrets, nowMs);
  },
  parse: (request, setup) => ({ answer: emptyAnswer, events: [readEvent(request, setup)] }),
  headersRead(settings) {
    const time = textOf(settings, 'timestampHeader');
    const named = templates.flatMap((name) => headersIn(textOf(settings, name) ?? ''));
    return time === null ? named : [time.toLowerCase(), ...named];
  },
  reply: replySteps,
  readReply: (reply) => readStatus(reply, ['id']),
  stream: null,
};

/** Settings that are filled in by the payload and its headers. */
const templates = ['type', 'text', 'conversation', 'deliveryId', 'messageId', 'sender'];

const schemeOf = (settings: ChannelSetup['settings']) => textOf(settings, 'scheme') ?? 'standard';

function check({ settings, credentials }: Pick<ChannelSetup, 'settings' | 'credentials'>): void {
  const scheme = schemeOf(settings);
  for (const name of ['signatureHeader', 'timestampHeader']) {
    const value = textOf(settings, name);
    if (value !== null && !headerName.test(value))
      throw invalid(`settings.${name}`, 'must be the name of a header.');
  }
  if (scheme !== 'standard' && textOf(settings, 'signatureHeader') === null) {
    throw invalid('settings.signatureHeader', `is needed with the scheme "${scheme}".`);
  }
  const secret = credentials['secret'] ?? '';
  if (scheme === 'standard' && !/^(whsec_)?[A-Za-z0-9+/]{32,128}={0,2}$/.test(secret)) {
    throw invalid('credentials.secret', 'must be whsec_ and base64 of 24 to 64 bytes (Standard Webhooks).');
  }
  if (secret.length < 8) throw invalid('credentials.secret', 'must have at least 8 characters.');
}

function readEvent(request: InboundRequest, setup: ChannelSetup): InboundEvent {
  const payload = readPayload(request);
  const template = (name: string) => {
    const text = textOf(setup.settings, name);
    return text === null ? null : fillTemplate(text, payload, request).trim() || null;
  };
  const delivery = template('deliveryId') ?? ownId(request, setup);
  const skipsEmpty = isOn(setup.settings, 'skipEmpty');
  const text = template('text') ?? (skipsEmpty ? '' : whole(payload));
  const sender = template('sender');
  return withoutEmpty(
    event({
      kind: `generic.${plainName(template('type') ?? 'event')}`,
      deliveryKey: delivery,
      messageKey: template('messageId') ?? delivery,
      conversationKey: template('conversation') ?? `delivery:${delivery}`,
      text: text.slice(0, textChars),
      sender: sender === null ? null : { id: sender.slice(0, 300), name: null, isBot: false },
      replyTo:
        textOf(setup.settings, 'replyUrl') === null
          ? null
          : { deliveryId: delivery.slice(0, 300), conversation: template('conversation') },
    }),
  );
}

/** Of the standard, else the hash of what is signed: with the time in it, the same text can come twice. */
function ownId(request: InboundRequest, setup: ChannelSetup): string {
  const id = schemeOf(setup.settings) === 'standard' ? standardHeaders(request)?.id : undefined;
  return id ?? `body:${sha256(signedTime(request, setup) ?? '', request.body).toString('hex')}`;
}

const whole = (payload: unknown) =>
  typeof payload === 'string' ? payload : JSON.stringify(payload, null, 2);

function readPayload(request: InboundRequest): unknown {
  const { type, charset } = mediaType(request);
  if (isJsonType(type)) return readJsonBody(request);
  if (type === 'application/x-www-form-urlencoded') return Object.fromEntries(readFormBody(request));
  if (type === 'text/plain') return decode(request.body, charset);
  throw new DomainError(
    'unsupported_media_type',
    'This channel takes JSON, a urlencoded form or plain text.',
  );
}

/** Signed as the channel's own deliveries are, with the same secret. */
function replySteps(answer: Answer, setup: ChannelSetup, nowMs: number): ReplyStep[] {
  const url = textOf(setup.settings, 'replyUrl');
  if (url === null || answer.text.trim() === '') return [];
  const { deliveryId, conversation } = answer.replyTo;
  const body = { type: 'agent.answer', data: { text: answer.text, deliveryId, conversation } };
  const call = jsonCall('POST', url, body);
  const seconds = Math.floor(nowMs / 1_000);
  const secret = setup.credentials['secret'] ?? '';
  const signature =
    schemeOf(setup.settings) === 'standard'
      ? signStandard(answer.outboxId, seconds, call.body ?? '', secret)
      : { 'webhook-id': answer.outboxId, ...signHmac(setup, secret, seconds, call.body ?? '') };
  return [
    {
      call: { ...call, headers: { ...call.headers, ...signature } },
      repeat: 'same',
      lookup: null,
      mark: answer.outboxId,
    },
  ];
}
