import { createPublicKey, X509Certificate, type KeyObject } from 'node:crypto';
import type { IgnoreReason } from '../../domain/channel.ts';
import { invalid } from '../../domain/errors.ts';
import type {
  Answer,
  ChannelKind,
  ChannelSetup,
  Documents,
  InboundRequest,
  ReplyStep,
  TokenGrant,
  Verdict,
} from '../../domain/ports/channel.ts';
import { bearerToken } from '../bearer-token.ts';
import { at, isObject, needText, objectAt, readJsonBody, textAt, type Json } from '../body.ts';
import { formCall, jsonCall, readStatus } from '../call.ts';
import { emptyAnswer, event, plainName, withoutEmpty } from '../event.ts';
import { claimsHold, isSignedBy, keyOfSet, signToken, type Token } from '../jwt.ts';
import { parsedDocument } from '../documents.ts';
import { sha256, forged, genuine, unnamed } from '../signing.ts';
import { splitText } from '../split.ts';
import { allows, apiOf, required, sentToApi, setting, textOf } from '../specs.ts';

const chatAccount = 'chat@system.gserviceaccount.com';
const googleKeys = 'https://www.googleapis.com/oauth2/v3/certs';
const chatCertificates = `https://www.googleapis.com/service_accounts/v1/metadata/x509/${chatAccount}`;
const textChars = 4_000;

export const googleChat: ChannelKind = {
  name: 'googlechat',
  bodyBytes: 1024 * 1024,
  methods: ['POST'],
  whenBusy: 503,
  lane: () => 'reserved',
  paceMs: 1_000,
  credentials: [
    required('serviceAccount', 'The JSON key file of a service account of the Chat app, as text.'),
  ],
  settings: [
    setting(
      'projectNumber',
      'text',
      'The project number, when that is the authentication audience of the app.',
    ),
    setting(
      'audienceUrl',
      'namedUrl',
      'The endpoint URL as entered at Google, when it is another than webhookUrl.',
    ),
    setting('spaces', 'texts', 'Names of spaces to take messages from, as spaces/AAAA; none given: all.'),
  ],
  signing: () => ({ credential: 'serviceAccount', made: 'given' }),
  sentTo: sentToApi('serviceAccount'),
  check({ credentials }) {
    if (readAccount(credentials['serviceAccount'] ?? '') === null) {
      throw invalid(
        'credentials.serviceAccount',
        'must be the JSON key file, with client_email and private_key.',
      );
    }
  },
  verify: verifyGoogleChat,
  parse(request, setup) {
    return {
      answer: { ...emptyAnswer, headers: { 'content-type': 'application/json' }, body: '{}' },
      events: [readEvent(readJsonBody(request), setup)],
    };
  },
  reply: replySteps,
  readReply: (reply) => readStatus(reply, ['name']),
  stream: null,
};

/**
 * Two shapes (developers.google.com/workspace/chat/verify-requests-from-chat): a token that the Chat account signed
 * itself for the project number, or an OpenID token for the endpoint URL. Anyone can get the second kind of token for
 * any audience, so that it must say that the Chat account is its holder.
 */
function verifyGoogleChat(
  request: InboundRequest,
  setup: ChannelSetup,
  nowMs: number,
  documents: Documents,
): Verdict {
  const given = bearerToken(request);
  if ('refusal' in given) return given.refusal;
  const { token } = given;
  const project = textOf(setup.settings, 'projectNumber');
  const isProjectToken = textAt(token.claims, 'iss') === chatAccount;
  if (isProjectToken && project === null) {
    return forged('signature_wrong', 'The token is for a project number; set projectNumber.');
  }
  const expected = isProjectToken
    ? { issuers: [chatAccount], audience: project ?? '' }
    : {
        issuers: ['https://accounts.google.com', 'accounts.google.com'],
        audience: textOf(setup.settings, 'audienceUrl') ?? request.url,
      };
  const holds = claimsHold(token, expected, nowMs);
  if (holds === 'stale') return forged('signature_stale', 'The token has expired.');
  if (holds === 'no')
    return forged('signature_wrong', 'The token is for another audience; check the Chat app.');
  if (!isProjectToken && !isHeldByChat(token)) {
    return forged('signature_wrong', `The token is not held by ${chatAccount}.`);
  }
  const usual = isProjectToken ? chatCertificates : googleKeys;
  const url = setup.apiBaseUrl === null ? usual : setup.apiBaseUrl + new URL(usual).pathname;
  const document = documents.get(url);
  if (document === undefined) return { verdict: 'needs_document', url };
  const value = parsedDocument(document);
  const key = isProjectToken ? keyOfCertificates(value, token) : keyOfSet(value, token);
  if (key === 'unnamed') return unnamed(url, 'Google has no key of this name.');
  return key && isSignedBy(token, key)
    ? genuine
    : forged('signature_wrong', 'The token was not signed by Google.');
}

function isHeldByChat(token: Token): boolean {
  return textAt(token.claims, 'email') === chatAccount && at(token.claims, 'email_verified') === true;
}

/** An object of certificates in PEM by their key id, as `keyOfSet`. */
function keyOfCertificates(value: unknown, token: Token): KeyObject | null | 'unnamed' {
  const keyId = textAt(token.header, 'kid');
  if (keyId === null) return null;
  const pem = textAt(value, keyId);
  if (pem === null) return 'unnamed';
  try {
    return pem.includes('BEGIN CERTIFICATE') ? new X509Certificate(pem).publicKey : createPublicKey(pem);
  } catch {
    return null;
  }
}

function readEvent(body: Json, setup: ChannelSetup) {
  const type = plainName(textAt(body, 'type'));
  const message = objectAt(body, 'message');
  const name = textAt(message, 'name');
  const space = textAt(body, 'space', 'name') ?? textAt(message, 'space', 'name') ?? '';
  const thread = textAt(message, 'thread', 'name');
  const isDirect =
    (textAt(body, 'space', 'spaceType') ?? textAt(body, 'space', 'type')) === 'DM' ||
    textAt(body, 'space', 'spaceType') === 'DIRECT_MESSAGE';
  const user = isObject(at(message, 'sender')) ? objectAt(message, 'sender') : objectAt(body, 'user');
  const isMessage = type === 'message';
  const key = isMessage
    ? needText(message, 'name')
    : `${type}:${space}:${textAt(body, 'eventTime') ?? ''}:${name ?? ''}`;
  return withoutEmpty(
    event({
      kind: `googlechat.${type}`,
      deliveryKey: key,
      messageKey: isMessage ? key : null,
      conversationKey: isDirect || thread === null ? space : thread,
      text: (textAt(message, 'argumentText') ?? textAt(message, 'text') ?? '').trim(),
      sender: {
        id: textAt(user, 'name') ?? '',
        name: textAt(user, 'displayName'),
        isBot: textAt(user, 'type') === 'BOT',
      },
      ignore: reasonToIgnore(isMessage, user, space, setup),
      replyTo: space === '' ? null : { space, thread: isDirect ? null : thread },
    }),
  );
}

function reasonToIgnore(
  isMessage: boolean,
  user: Json,
  space: string,
  setup: ChannelSetup,
): IgnoreReason | null {
  if (!isMessage) return 'not_a_message';
  if (textAt(user, 'type') === 'BOT') return 'other_bot';
  return allows(setup.settings, 'spaces', space) ? null : 'not_addressed';
}

function replySteps(answer: Answer, setup: ChannelSetup, nowMs: number): ReplyStep[] {
  const { space, thread } = answer.replyTo;
  if (typeof space !== 'string' || !/^spaces\/[\w-]+$/.test(space)) return [];
  const base = `${apiOf(setup, 'https://chat.googleapis.com')}/v1/${space}/messages`;
  return splitText(answer.text, textChars).map((text, index) => {
    const mark = `${answer.outboxId}:${index}`;
    // The same request id gives the message that it made before.
    const requestId = sha256(mark).toString('hex').slice(0, 32);
    const query = new URLSearchParams({
      messageReplyOption: 'REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD',
      requestId,
    });
    const body = { text, ...(thread === null ? {} : { thread: { name: thread } }) };
    return {
      call: jsonCall('POST', `${base}?${query}`, body, {}, tokenGrant(setup, nowMs)),
      repeat: 'same',
      lookup: null,
      mark,
    };
  });
}

function readAccount(text: string): { email: string; privateKey: string } | null {
  const value = parsedDocument(text);
  const email = textAt(value, 'client_email');
  const privateKey = textAt(value, 'private_key');
  return email && privateKey ? { email, privateKey } : null;
}

/** developers.google.com/identity/protocols/oauth2/service-account, "HTTP/REST". */
function tokenGrant(setup: ChannelSetup, nowMs: number): TokenGrant {
  const account = readAccount(setup.credentials['serviceAccount'] ?? '') ?? { email: '', privateKey: '' };
  const url = `${apiOf(setup, 'https://oauth2.googleapis.com')}/token`;
  const seconds = Math.floor(nowMs / 1_000);
  const claims = {
    iss: account.email,
    scope: 'https://www.googleapis.com/auth/chat.bot',
    aud: 'https://oauth2.googleapis.com/token',
    iat: seconds,
    exp: seconds + 3_600,
  };
  return {
    cacheKey: `googlechat:${setup.channelId}`,
    call: formCall(url, [
      ['grant_type', 'urn:ietf:params:oauth:grant-type:jwt-bearer'],
      ['assertion', signToken(claims, account.privateKey)],
    ]),
    tokenField: 'access_token',
  };
}
