import type { ChannelKind, ChannelSetup, InboundRequest, Verdict } from '../../domain/ports/channel.ts';
import { invalid } from '../../domain/errors.ts';
import { readJsonOrPayload } from '../body.ts';
import { emptyAnswer } from '../event.ts';
import { forged, genuine, secretsOf, signedInHex } from '../signing.ts';
import { allowBots, maxAnswersPerBot, optional, required, sentToApi, setting, textOf } from '../specs.ts';
import { readGithubEvent } from './github-event.ts';
import { githubReply, nextLookup, readReply } from './github-reply.ts';

export const github: ChannelKind = {
  name: 'github',
  bodyBytes: 25 * 1024 * 1024,
  methods: ['POST'],
  whenBusy: 503,
  // A delivery that failed is sent again only when somebody asks for it.
  lane: () => 'reserved',
  paceMs: 1_000,
  credentials: [
    required('webhookSecret', 'The secret of the webhook or of the GitHub App.'),
    optional('token', 'A token that may comment. In its place an app answers with appPrivateKey.'),
    optional('appPrivateKey', 'The private key of the GitHub App in PEM; with the setting appId.'),
  ],
  settings: [
    setting('respondTo', ['mention', 'all'], 'Comments and issues that name the agent, or all.', 'mention'),
    setting('mention', 'text', 'The name that addresses the agent, without @; needed for mentions.'),
    setting('repositories', 'texts', 'Repositories to take events from, as owner/name; none given: all.'),
    setting(
      'events',
      'texts',
      'Events beside comments, issues and pull requests that start a turn, such as push.',
    ),
    setting('appId', 'text', 'The id of the GitHub App that answers.'),
    allowBots,
    maxAnswersPerBot,
  ],
  signing: () => ({ credential: 'webhookSecret', made: 'token' }),
  sentTo: sentToApi('token', 'appPrivateKey'),
  check({ settings, credentials }) {
    if (credentials['appPrivateKey'] && textOf(settings, 'appId') === null) {
      throw invalid('settings.appId', 'is needed with appPrivateKey.');
    }
    if (textOf(settings, 'respondTo') !== 'all' && textOf(settings, 'mention') === null) {
      throw invalid('settings.mention', 'is needed unless respondTo is "all".');
    }
  },
  verify: (request, setup) => verifyGithub(request, setup),
  parse(request, setup) {
    const found = readGithubEvent(request, readJsonOrPayload(request), setup);
    return { answer: emptyAnswer, events: found ? [found] : [] };
  },
  reply: githubReply,
  readReply,
  nextLookup,
  stream: null,
};

/** docs.github.com, "Validating webhook deliveries". The signature has no time in it: the delivery key stops replays. */
function verifyGithub(request: InboundRequest, setup: ChannelSetup): Verdict {
  const signature = request.headers.get('x-hub-signature-256');
  if (!signature)
    return forged('signature_missing', 'The header X-Hub-Signature-256 is needed; set a secret at GitHub.');
  if (!signature.startsWith('sha256=')) {
    return forged('signature_malformed', 'X-Hub-Signature-256 must begin with "sha256=".');
  }
  const secrets = secretsOf(setup.credentials['webhookSecret'], setup.previousSecret);
  return signedInHex(secrets, signature.slice(7), request.body)
    ? genuine
    : forged('signature_wrong', 'X-Hub-Signature-256 does not fit; check the secret of the webhook.');
}
