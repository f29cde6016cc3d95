import type { ChannelSetup, InboundEvent } from '../../domain/ports/channel.ts';
import { at, isObject, listAt, textAt, type Json } from '../body.ts';
import { event, withoutEmpty } from '../event.ts';
import { allows, leadsTo } from '../specs.ts';

const responseHosts = ['hooks.slack.com', 'hooks.slack-gov.com'];

/** A slash command (docs.slack.dev, "Implementing slash commands"). Slack sends it once. */
export function readCommand(form: URLSearchParams, setup: ChannelSetup): InboundEvent {
  const field = (name: string) => form.get(name) ?? '';
  const [teamId, channel, userId] = [field('team_id'), field('channel_id'), field('user_id')];
  const isOurs =
    allows(setup.settings, 'teamIds', teamId) &&
    allows(setup.settings, 'channels', channel) &&
    allows(setup.settings, 'commands', field('command'));
  const key = `command:${teamId}:${field('trigger_id')}`;
  const responseUrl = field('response_url');
  return event({
    kind: 'slack.command',
    deliveryKey: key,
    messageKey: key,
    // What one person asks by commands in one channel belongs together.
    conversationKey: `${teamId}:${channel}:command:${userId}`,
    text: `${field('command')} ${field('text')}`.trim(),
    sender: { id: userId, name: field('user_name') || null, isBot: false },
    ignore: isOurs ? null : 'not_addressed',
    replyTo: {
      channel,
      threadTs: null,
      messageTs: null,
      userId,
      teamId,
      responseUrl: leadsTo(responseUrl, responseHosts, setup) ? responseUrl : null,
    },
  });
}

/** A button, a menu, a shortcut or a submitted dialog (docs.slack.dev, "Interaction payloads"). */
export function readAction(body: Json, setup: ChannelSetup): InboundEvent {
  const actions = listAt(body, 'actions');
  const teamId = textAt(body, 'team', 'id') ?? textAt(body, 'user', 'team_id') ?? '';
  const channel = textAt(body, 'channel', 'id') ?? textAt(body, 'container', 'channel_id') ?? '';
  const messageTs = textAt(body, 'message', 'ts') ?? textAt(body, 'container', 'message_ts');
  const root = textAt(body, 'message', 'thread_ts') ?? textAt(body, 'container', 'thread_ts') ?? messageTs;
  const userId = textAt(body, 'user', 'id') ?? '';
  const first = actions[0];
  const mark = first
    ? `${textAt(first, 'action_ts') ?? ''}:${textAt(first, 'action_id') ?? ''}:${userId}`
    : (textAt(body, 'trigger_id') ?? textAt(body, 'view', 'hash') ?? '');
  const isOurs =
    allows(setup.settings, 'teamIds', teamId) && allows(setup.settings, 'channels', channel || null);
  const responseUrl = textAt(body, 'response_url');
  return withoutEmpty(
    event({
      kind: 'slack.action',
      deliveryKey: `action:${teamId}:${mark}`,
      messageKey: `action:${teamId}:${mark}`,
      conversationKey:
        root === null ? `${teamId}:${channel}:action:${userId}` : `${teamId}:${channel}:${root}`,
      text: actionText(body, actions),
      sender: {
        id: userId,
        name: textAt(body, 'user', 'username') ?? textAt(body, 'user', 'name'),
        isBot: false,
      },
      ignore: isOurs ? null : 'not_addressed',
      replyTo: {
        channel,
        threadTs: root,
        messageTs,
        userId,
        teamId,
        responseUrl: leadsTo(responseUrl, responseHosts, setup) ? responseUrl : null,
      },
    }),
  );
}

function actionText(body: Json, actions: unknown[]): string {
  const lines = actions.map((action) => {
    const chosen =
      textAt(action, 'selected_option', 'value') ??
      textAt(action, 'value') ??
      textAt(action, 'selected_date') ??
      textAt(action, 'selected_user') ??
      textAt(action, 'text', 'text') ??
      '';
    return `${textAt(action, 'action_id') ?? 'action'}: ${chosen}`;
  });
  const values = at(body, 'view', 'state', 'values');
  if (isObject(values)) {
    for (const block of Object.values(values)) {
      if (!isObject(block)) continue;
      for (const [name, input] of Object.entries(block)) {
        lines.push(`${name}: ${textAt(input, 'value') ?? textAt(input, 'selected_option', 'value') ?? ''}`);
      }
    }
  }
  if (lines.length > 0) return lines.join('\n');
  const said = textAt(body, 'message', 'text');
  return [textAt(body, 'callback_id') ?? '', said ?? ''].filter((text) => text !== '').join('\n');
}
