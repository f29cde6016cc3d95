import type { ChannelKindName } from '../../domain/channel.ts';
import type { ChannelSamples } from '../../domain/ports/channel-sample.ts';
import {
  discordSamples,
  googleChatSamples,
  teamsSamples,
  telegramSamples,
  twilioSamples,
  whatsappSamples,
} from './chat-samples.ts';
import { githubSamples, gitlabSamples, linearSamples } from './code-samples.ts';
import { genericSamples } from './generic-samples.ts';
import { mailSamples } from './mail-samples.ts';
import type { SampleKind } from './sample.ts';
import { slackSamples } from './slack-samples.ts';

const byKind: Record<ChannelKindName, SampleKind> = {
  slack: slackSamples,
  email: mailSamples,
  github: githubSamples,
  gitlab: gitlabSamples,
  linear: linearSamples,
  telegram: telegramSamples,
  discord: discordSamples,
  whatsapp: whatsappSamples,
  twilio: twilioSamples,
  teams: teamsSamples,
  googlechat: googleChatSamples,
  generic: genericSamples,
};

export const samples: ChannelSamples = {
  names: (kind, setup) => byKind[kind].names(setup),
  make: (kind, input, setup) => byKind[kind].make(input, setup),
};
