import type {
  ChannelKind,
  ChannelSetup,
  InboundAnswer,
  InboundEvent,
  InboundRequest,
} from '../../domain/ports/channel.ts';
import { isJsonType, mediaType, needText, parseJson, readFormBody, readJsonBody, textAt } from '../body.ts';
import { emptyAnswer, event, textAnswer } from '../event.ts';
import { allowBots, maxAnswersPerBot, required, sentToApi, setting } from '../specs.ts';
import { readAction, readCommand } from './interaction.ts';
import { readEvent } from './message.ts';
import { answerStream, nextLookup, readReply, replySteps } from './reply.ts';
import { verifySlack } from './verify.ts';

export const slack: ChannelKind = {
  name: 'slack',
  bodyBytes: 1024 * 1024,
  methods: ['POST'],
  whenBusy: 503,
  // Events are sent again, commands and actions never.
  lane: (request) => (isJsonType(mediaType(request).type) ? 'ordinary' : 'reserved'),
  paceMs: 1_000,
  credentials: [
    required('signingSecret', 'The signing secret of the Slack app (Basic Information, App Credentials).'),
    required('botToken', 'The bot user OAuth token, xoxb-… (OAuth & Permissions).'),
  ],
  settings: [
    setting(
      'respondTo',
      ['mention', 'dm', 'all'],
      'Mentions and direct messages, direct messages alone, or all.',
      'mention',
    ),
    setting(
      'replyMode',
      ['thread', 'channel'],
      'Whether each message in a channel begins a thread.',
      'thread',
    ),
    setting('teamIds', 'texts', 'Workspaces to take messages from; none given: all that have the app.'),
    setting('channels', 'texts', 'Ids of Slack channels to take messages from; none given: all.'),
    setting('commands', 'texts', 'Slash commands to take, as /ask; none given: all.'),
    setting(
      'appId',
      'text',
      'The id of the Slack app, A…, when several agents share it over the URL /api/webhooks/slack.',
    ),
    allowBots,
    maxAnswersPerBot,
    setting(
      'streaming',
      'flag',
      'Whether an answer appears with its first words and grows; Slack marks it as edited. Needs no more than chat:write.',
      false,
    ),
  ],
  signing: () => ({ credential: 'signingSecret', made: 'given' }),
  sentTo: sentToApi('botToken'),
  check() {},
  verify: (request, setup, nowMs) => verifySlack(request, setup, nowMs),
  parse,
  reply: (answer, setup) => replySteps(answer, setup),
  readReply,
  nextLookup,
  stream: answerStream,
};

function parse(
  request: InboundRequest,
  setup: ChannelSetup,
): { answer: InboundAnswer; events: InboundEvent[] } {
  if (isJsonType(mediaType(request).type)) return parseDelivery(request, setup);
  const form = readFormBody(request);
  if (form.get('ssl_check') === '1') return { answer: emptyAnswer, events: [] };
  const payload = form.get('payload');
  if (payload !== null)
    return { answer: emptyAnswer, events: [readAction(parseJson(payload, 'payload'), setup)] };
  needText(Object.fromEntries(form), 'command');
  needText(Object.fromEntries(form), 'trigger_id');
  return { answer: emptyAnswer, events: [readCommand(form, setup)] };
}

function parseDelivery(request: InboundRequest, setup: ChannelSetup) {
  const body = readJsonBody(request);
  const type = textAt(body, 'type');
  if (type === 'url_verification') return { answer: textAnswer(needText(body, 'challenge')), events: [] };
  if (type === 'app_rate_limited') {
    const key = `rate:${textAt(body, 'team_id') ?? ''}:${textAt(body, 'minute_rate_limited') ?? ''}`;
    const notice = event({ kind: 'slack.app_rate_limited', deliveryKey: key, ignore: 'not_a_message' });
    return { answer: emptyAnswer, events: [notice] };
  }
  return { answer: emptyAnswer, events: [readEvent(request, body, setup)] };
}
