import type { ChannelKindName } from '../domain/channel.ts';
import type { ChannelKind } from '../domain/ports/channel.ts';
import { discord } from './chat/discord.ts';
import { googleChat } from './chat/google-chat.ts';
import { teams } from './chat/teams.ts';
import { telegram } from './chat/telegram.ts';
import { twilio } from './chat/twilio.ts';
import { whatsapp } from './chat/whatsapp.ts';
import { github } from './code/github.ts';
import { gitlab } from './code/gitlab.ts';
import { linear } from './code/linear.ts';
import { generic } from './generic/generic.ts';
import { email } from './mail/email.ts';
import { slack } from './slack/slack.ts';

export const kinds: Readonly<Record<ChannelKindName, ChannelKind>> = {
  slack,
  email,
  github,
  gitlab,
  linear,
  telegram,
  discord,
  whatsapp,
  twilio,
  teams,
  googlechat: googleChat,
  generic,
};
