import { invalid } from '../../domain/errors.ts';
import type { ChannelSetup, InboundRequest } from '../../domain/ports/channel.ts';
import type { SharedApp, SharedDelivery } from '../../domain/ports/shared-app.ts';
import { isJsonType, mediaType, parseJson, readFormBody, readJsonBody, textAt, type Json } from '../body.ts';
import { emptyAnswer, textAnswer } from '../event.ts';
import { allows, listOf } from '../specs.ts';

/** Slack's challenges are letters and digits; what is echoed to a stranger is nothing that a browser would run. */
const challenge = /^[\w.-]{1,200}$/;

/** One Slack app has one request URL: which of the agents that share it a delivery is for. */
export const slackApp: SharedApp = { read, fit };

/** Says where a delivery claims to belong: a hint, until it is verified with the secret that this leads to. */
function read(request: InboundRequest): SharedDelivery {
  if (isJsonType(mediaType(request).type)) {
    const body = readJsonBody(request);
    // It names no app, and asks for nothing but its own words.
    if (textAt(body, 'type') === 'url_verification') return { answer: echo(textAt(body, 'challenge')) };
    const event = ['channel', 'id'].flatMap((end) => [
      textAt(body, 'event', 'channel', end),
      textAt(body, 'event', 'item', end),
    ]);
    const channel = textAt(body, 'event', 'channel') ?? event.find((found) => found !== null) ?? null;
    return delivery(textAt(body, 'api_app_id'), textAt(body, 'team_id'), channel, null);
  }
  const form = readFormBody(request);
  if (form.get('ssl_check') === '1') return { answer: emptyAnswer };
  const payload = form.get('payload');
  if (payload !== null) return interaction(parseJson(payload, 'payload'));
  return delivery(form.get('api_app_id'), form.get('team_id'), form.get('channel_id'), form.get('command'));
}

function interaction(body: Json): SharedDelivery {
  const channel = textAt(body, 'channel', 'id') ?? textAt(body, 'container', 'channel_id');
  const team = textAt(body, 'team', 'id') ?? textAt(body, 'user', 'team_id');
  return delivery(textAt(body, 'api_app_id'), team, channel, null);
}

function delivery(
  appId: string | null,
  teamId: string | null,
  channel: string | null,
  command: string | null,
): SharedDelivery {
  if (appId === null || !/^[A-Za-z0-9]{1,40}$/.test(appId))
    throw invalid('api_app_id', 'is missing in the payload.');
  return {
    appId,
    places: { teamIds: teamId, channels: channel, ...(command !== null && { commands: command }) },
  };
}

function echo(text: string | null) {
  if (text === null || !challenge.test(text)) throw invalid('challenge', 'is missing in the payload.');
  const answer = textAnswer(text);
  return { ...answer, headers: { ...answer.headers, 'x-content-type-options': 'nosniff' } };
}

const weights = { teamIds: 1, channels: 2, commands: 4 } as const;

/** The more exactly a channel names where a delivery comes from, the more it is the one. */
function fit(
  { settings }: Pick<ChannelSetup, 'settings'>,
  places: Record<string, string | null>,
): number | null {
  let weight = 0;
  for (const name of ['teamIds', 'channels', 'commands'] as const) {
    if (!(name in places) || listOf(settings, name).length === 0) continue;
    if (!allows(settings, name, places[name] ?? null)) return null;
    weight += weights[name];
  }
  return weight;
}
