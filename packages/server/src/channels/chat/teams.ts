import type { IgnoreReason } from '../../domain/channel.ts';
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
import { at, listAt, needText, readJsonBody, textAt, type Json } from '../body.ts';
import { formCall, jsonCall, readStatus, segment } from '../call.ts';
import { emptyAnswer, event, plainName, withoutEmpty } from '../event.ts';
import { claimsHold, isSignedBy, keyOfSet } from '../jwt.ts';
import { forged, genuine, unnamed } from '../signing.ts';
import { splitText } from '../split.ts';
import { allows, leadsTo, required, requiredSetting, sentToApi, setting, textOf } from '../specs.ts';
import { parsedDocument, readJson } from '../documents.ts';

/** learn.microsoft.com, "Authenticate requests from the Bot Connector service". */
const openIdUrl = 'https://login.botframework.com/v1/.well-known/openidconfiguration';
const keyHosts = ['login.botframework.com'];
const serviceHosts = [
  'smba.trafficmanager.net',
  '.botframework.com',
  '.teams.microsoft.com',
  '.botframework.azure.us',
];
/** Teams takes about 28 KB for a message. */
const textChars = 12_000;

export const teams: ChannelKind = {
  name: 'teams',
  bodyBytes: 1024 * 1024,
  methods: ['POST'],
  whenBusy: 503,
  lane: () => 'reserved',
  paceMs: 1_000,
  credentials: [required('appPassword', 'A client secret of the bot registration.')],
  settings: [
    requiredSetting('appId', 'text', 'The application (client) id of the bot registration.'),
    setting('tenantId', 'text', 'The directory of a single-tenant bot.', 'botframework.com'),
    setting('tenants', 'texts', 'Ids of tenants to take messages from; none given: all that have the bot.'),
  ],
  signing: () => ({ credential: 'appPassword', made: 'given' }),
  sentTo: sentToApi('appPassword'),
  check() {},
  verify: verifyTeams,
  parse(request, setup) {
    return { answer: emptyAnswer, events: [readActivity(readJsonBody(request), setup)] };
  },
  reply: replySteps,
  readReply: (reply) => readStatus(reply, ['id']),
  stream: null,
};

function verifyTeams(
  request: InboundRequest,
  setup: ChannelSetup,
  nowMs: number,
  documents: Documents,
): Verdict {
  const given = bearerToken(request);
  if ('refusal' in given) return given.refusal;
  const { token } = given;
  const expected = {
    issuers: ['https://api.botframework.com'],
    audience: textOf(setup.settings, 'appId') ?? '',
  };
  const holds = claimsHold(token, expected, nowMs);
  if (holds === 'stale') return forged('signature_stale', 'The token has expired.');
  if (holds === 'no')
    return forged('signature_wrong', 'The token is not for this bot; check the setting appId.');
  const openId =
    setup.apiBaseUrl === null ? openIdUrl : `${setup.apiBaseUrl}/v1/.well-known/openidconfiguration`;
  const configuration = documents.get(openId);
  if (configuration === undefined) return { verdict: 'needs_document', url: openId };
  const keysUrl = textAt(parsedDocument(configuration), 'jwks_uri');
  if (!leadsTo(keysUrl, keyHosts, setup)) {
    return forged('signature_wrong', 'The key set of the Bot Connector is not where it should be.');
  }
  const keySet = documents.get(keysUrl);
  if (keySet === undefined) return { verdict: 'needs_document', url: keysUrl };
  const key = keyOfSet(parsedDocument(keySet), token);
  if (key === 'unnamed') return unnamed(keysUrl, 'The Bot Connector has no key of this name.');
  if (!key || !isSignedBy(token, key))
    return forged('signature_wrong', 'The token was not signed by the Bot Connector.');
  return matchesService(request, token.claims)
    ? genuine
    : forged('signature_wrong', 'The token is for another service address than the activity.');
}

/** The token covers no body, but it names the address to which answers go. */
function matchesService(request: InboundRequest, claims: Json): boolean {
  const claimed = textAt(claims, 'serviceurl') ?? textAt(claims, 'serviceUrl');
  if (claimed === null) return true;
  const body = readJson(request.body.toString());
  // Bad JSON is for `parse` to refuse.
  return body === null || claimed === textAt(body.value, 'serviceUrl');
}

function readActivity(body: Json, setup: ChannelSetup) {
  const id = needText(body, 'id');
  const conversation = needText(body, 'conversation', 'id');
  const serviceUrl = textAt(body, 'serviceUrl');
  const type = plainName(textAt(body, 'type'));
  const isTrusted = leadsTo(serviceUrl, serviceHosts, setup);
  return withoutEmpty(
    event({
      kind: `teams.${type}`,
      // An edit is another activity with the id of its message.
      deliveryKey:
        type === 'message'
          ? `${conversation}:${id}`
          : `${conversation}:${id}:${type}:${textAt(body, 'timestamp') ?? ''}`,
      messageKey: `${conversation}:${id}${type === 'message' ? '' : `:${type}`}`,
      conversationKey: conversation,
      text: withoutMention(body),
      sender: {
        id: textAt(body, 'from', 'aadObjectId') ?? textAt(body, 'from', 'id') ?? '',
        name: textAt(body, 'from', 'name'),
        isBot: textAt(body, 'from', 'role') === 'bot',
      },
      ignore: reasonToIgnore(body, type, setup),
      replyTo: isTrusted ? { serviceUrl: serviceUrl.replace(/\/$/, ''), conversation, activityId: id } : null,
    }),
  );
}

function reasonToIgnore(body: Json, type: string, setup: ChannelSetup): IgnoreReason | null {
  if (type === 'messageupdate') return 'edited';
  if (type === 'messagedelete') return 'deleted';
  if (type !== 'message') return 'not_a_message';
  const botId = `28:${textOf(setup.settings, 'appId') ?? ''}`;
  if (
    textAt(body, 'from', 'id') === botId ||
    textAt(body, 'from', 'id') === textAt(body, 'recipient', 'id')
  ) {
    return 'own_message';
  }
  if (textAt(body, 'from', 'role') === 'bot') return 'other_bot';
  const tenant = textAt(body, 'channelData', 'tenant', 'id') ?? textAt(body, 'conversation', 'tenantId');
  return allows(setup.settings, 'tenants', tenant) ? null : 'not_addressed';
}

/** Teams puts `<at>Bot</at>` before what is said. */
function withoutMention(body: Json): string {
  let text = textAt(body, 'text') ?? '';
  const botId = textAt(body, 'recipient', 'id');
  for (const entity of listAt(body, 'entities').slice(0, 50)) {
    const mention = textAt(entity, 'text');
    const isBot = at(entity, 'type') === 'mention' && textAt(entity, 'mentioned', 'id') === botId;
    if (isBot && mention) text = text.replace(mention, '');
  }
  return text.trim();
}

function replySteps(answer: Answer, setup: ChannelSetup): ReplyStep[] {
  const { serviceUrl, conversation, activityId } = answer.replyTo;
  // What was trusted when it came in need not be any more: the API of the channel may be another one since.
  if (typeof serviceUrl !== 'string' || !leadsTo(serviceUrl, serviceHosts, setup)) return [];
  const url = `${serviceUrl}/v3/conversations/${segment(String(conversation))}/activities/${segment(String(activityId))}`;
  return splitText(answer.text, textChars).map((text, index) => ({
    call: jsonCall(
      'POST',
      url,
      { type: 'message', text, textFormat: 'markdown', replyToId: activityId },
      {},
      tokenGrant(setup),
    ),
    repeat: 'again',
    lookup: null,
    mark: `${answer.outboxId}:${index}`,
  }));
}

function tokenGrant(setup: ChannelSetup): TokenGrant {
  const tenant = textOf(setup.settings, 'tenantId') ?? 'botframework.com';
  const appId = textOf(setup.settings, 'appId') ?? '';
  const base = setup.apiBaseUrl ?? 'https://login.microsoftonline.com';
  return {
    cacheKey: `teams:${setup.channelId}`,
    call: formCall(`${base}/${segment(tenant)}/oauth2/v2.0/token`, [
      ['grant_type', 'client_credentials'],
      ['client_id', appId],
      ['client_secret', setup.credentials['appPassword'] ?? ''],
      ['scope', 'https://api.botframework.com/.default'],
    ]),
    tokenField: 'access_token',
  };
}
