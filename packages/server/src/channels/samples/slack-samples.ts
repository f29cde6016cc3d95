import type { ChannelSetup } from '../../domain/ports/channel.ts';
import type { SampleInput } from '../../domain/ports/channel-sample.ts';
import { hmac } from '../signing.ts';
import { textOf } from '../specs.ts';
import { firstOf, numberOf, post, secretOf, signedSample, unixSeconds, type SampleKind } from './sample.ts';

const form = 'application/x-www-form-urlencoded';

/** As in Slack's own examples (docs.slack.dev, "Events API", "Slash commands", "Interaction payloads"). */
export const slackSamples: SampleKind = {
  names: () => ['slack.message', 'slack.retry', 'slack.command', 'slack.action'],
  make(input, setup) {
    const team = firstOf(setup, 'teamIds', 'T061EG9R6');
    const channel = firstOf(setup, 'channels', 'C0LAN2Q65');
    if (input.event === 'slack.command')
      return signedSample(signed(input, setup, form, command(input, setup, team, channel)));
    if (input.event === 'slack.action')
      return signedSample(signed(input, setup, form, action(input, team, channel)));
    const body = JSON.stringify(mention(input, setup, team, channel));
    const first = signed(input, setup, 'application/json', body);
    if (input.event === 'slack.message') return signedSample(first);
    const retry = { 'x-slack-retry-num': '1', 'x-slack-retry-reason': 'http_timeout' };
    return signedSample(first, signed(input, setup, 'application/json', body, retry));
  },
};

const appId = (setup: ChannelSetup) => textOf(setup.settings, 'appId') ?? 'A0PNCHHK2';

function signed(
  input: SampleInput,
  setup: ChannelSetup,
  type: string,
  body: string,
  headers: Record<string, string> = {},
) {
  const mac = hmac('sha256', secretOf(setup, 'signingSecret'), `v0:${unixSeconds(input)}:`, body);
  return post(input, type, body, {
    ...headers,
    'x-slack-request-timestamp': unixSeconds(input),
    'x-slack-signature': `v0=${mac.toString('hex')}`,
  });
}

function mention(input: SampleInput, setup: ChannelSetup, team: string, channel: string) {
  const ts = `${unixSeconds(input)}.${numberOf(input).slice(-6)}`;
  // A channel that takes direct messages alone gets one.
  const isDirect = textOf(setup.settings, 'respondTo') === 'dm';
  return {
    team_id: team,
    api_app_id: appId(setup),
    type: 'event_callback',
    event_id: `Ev${input.id}`,
    event_time: Number(unixSeconds(input)),
    authorizations: [{ team_id: team, user_id: 'U0SAMPLEBOT', is_bot: true }],
    event: {
      type: isDirect ? 'message' : 'app_mention',
      user: 'U0SAMPLE',
      text: isDirect ? input.text : `<@U0SAMPLEBOT> ${input.text}`,
      ts,
      event_ts: ts,
      channel,
      ...(isDirect ? { channel_type: 'im' } : {}),
    },
  };
}

function command(input: SampleInput, setup: ChannelSetup, team: string, channel: string): string {
  return new URLSearchParams({
    api_app_id: appId(setup),
    team_id: team,
    channel_id: channel,
    user_id: 'U0SAMPLE',
    user_name: 'sample',
    command: firstOf(setup, 'commands', '/ask'),
    text: input.text,
    trigger_id: `sample.${input.id}`,
  }).toString();
}

function action(input: SampleInput, team: string, channel: string): string {
  const ts = `${unixSeconds(input)}.${numberOf(input).slice(-6)}`;
  const payload = {
    type: 'block_actions',
    team: { id: team },
    user: { id: 'U0SAMPLE', username: 'sample' },
    channel: { id: channel },
    message: { ts },
    actions: [{ action_id: 'sample', value: input.text, action_ts: ts }],
  };
  return new URLSearchParams({ payload: JSON.stringify(payload) }).toString();
}
