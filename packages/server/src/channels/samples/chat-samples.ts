import type { SampleInput } from '../../domain/ports/channel-sample.ts';
import { hmac } from '../signing.ts';
import { textOf } from '../specs.ts';
import {
  firstOf,
  hexOf,
  numberOf,
  post,
  secretOf,
  signedSample,
  unixSeconds,
  unsignedSample,
  type SampleKind,
} from './sample.ts';

const json = 'application/json';

/** core.telegram.org/bots/api, "Update". */
export const telegramSamples: SampleKind = {
  names: () => ['telegram.message', 'telegram.callback'],
  make(input, setup) {
    const id = Number(numberOf(input));
    const from = { id: 1111, is_bot: false, first_name: 'Sample', username: 'sample' };
    const message = {
      message_id: id % 1_000_000_000,
      from,
      chat: { id: Number(firstOf(setup, 'chats', '1111')) || 1111, type: 'private', first_name: 'Sample' },
      date: Number(unixSeconds(input)),
    };
    const update =
      input.event === 'telegram.callback'
        ? { callback_query: { id: String(id), from, message, data: input.text } }
        : { message: { ...message, text: input.text } };
    const body = JSON.stringify({ update_id: id, ...update });
    const proof = { 'x-telegram-bot-api-secret-token': secretOf(setup, 'webhookSecret') };
    return signedSample(post(input, json, body, proof));
  },
};

/** developers.facebook.com, "WhatsApp Business Platform, Webhooks". */
export const whatsappSamples: SampleKind = {
  names: () => ['whatsapp.message', 'whatsapp.status'],
  make(input, setup) {
    const from = firstOf(setup, 'allowedSenders', '16505551234');
    const id = `wamid.${input.id}`;
    const said =
      input.event === 'whatsapp.status'
        ? { statuses: [{ id, status: 'delivered', recipient_id: from }] }
        : {
            contacts: [{ profile: { name: 'Sample' }, wa_id: from }],
            messages: [{ from, id, timestamp: unixSeconds(input), type: 'text', text: { body: input.text } }],
          };
    const metadata = { phone_number_id: textOf(setup.settings, 'phoneNumberId') };
    const value = { messaging_product: 'whatsapp', metadata, ...said };
    const body = JSON.stringify({
      object: 'whatsapp_business_account',
      entry: [{ id: '1', changes: [{ field: 'messages', value }] }],
    });
    const mac = hmac('sha256', secretOf(setup, 'appSecret'), body).toString('hex');
    return signedSample(post(input, json, body, { 'x-hub-signature-256': `sha256=${mac}` }));
  },
};

/** twilio.com/docs, "Twilio's request to your webhook". */
export const twilioSamples: SampleKind = {
  names: () => ['twilio.message', 'twilio.status'],
  make(input, setup) {
    const isStatus = input.event === 'twilio.status';
    const fields: [string, string][] = [
      ['AccountSid', secretOf(setup, 'accountSid')],
      ['From', firstOf(setup, 'allowedSenders', '+15005550006')],
      ['MessageSid', `SM${hexOf(input).padStart(32, '0')}`],
      ['SmsStatus', isStatus ? 'delivered' : 'received'],
      ['To', '+15005550001'],
      ...(isStatus
        ? []
        : ([
            ['Body', input.text],
            ['NumMedia', '0'],
          ] as [string, string][])),
    ];
    const url = textOf(setup.settings, 'publicUrl') ?? input.url;
    const text = fields
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => name + value)
      .join('');
    const mac = hmac('sha1', secretOf(setup, 'authToken'), url + text).toString('base64');
    const body = new URLSearchParams(fields).toString();
    const type = 'application/x-www-form-urlencoded; charset=utf-8';
    return signedSample(post(input, type, body, { 'x-twilio-signature': mac }));
  },
};

/** discord.com/developers, "Receiving and Responding to Interactions". Discord alone has the private key. */
export const discordSamples: SampleKind = {
  names: () => ['discord.command', 'discord.component'],
  make(input, setup) {
    const isCommand = input.event === 'discord.command';
    const data = isCommand
      ? { id: '1', name: 'ask', options: [{ name: 'q', type: 3, value: input.text }] }
      : { custom_id: 'sample', values: [input.text] };
    const body = JSON.stringify({
      id: numberOf(input),
      application_id: '1',
      type: isCommand ? 2 : 3,
      token: `sample-${input.id}`,
      guild_id: firstOf(setup, 'guilds', '1'),
      channel_id: firstOf(setup, 'channels', '1'),
      member: { user: { id: '1', username: 'sample' } },
      data,
    });
    return unsignedSample(post(input, json, body, {}));
  },
};

/** learn.microsoft.com, "Bot Framework activities". Microsoft alone can sign the token. */
export const teamsSamples: SampleKind = {
  names: () => ['teams.message'],
  make(input, setup) {
    const body = JSON.stringify({
      type: 'message',
      id: numberOf(input),
      timestamp: isoOf(input),
      serviceUrl: setup.apiBaseUrl ?? 'https://smba.trafficmanager.net/teams/',
      channelId: 'msteams',
      from: { id: '29:sample', name: 'Sample', aadObjectId: 'sample' },
      conversation: { id: `19:${input.id}@thread.skype` },
      recipient: { id: `28:${textOf(setup.settings, 'appId') ?? ''}`, name: 'Agent' },
      text: input.text,
      channelData: { tenant: { id: firstOf(setup, 'tenants', 'sample') } },
    });
    return unsignedSample(post(input, json, body, {}));
  },
};

/** developers.google.com/workspace/chat, "Receive and respond to interaction events". Google alone can sign the token. */
export const googleChatSamples: SampleKind = {
  names: () => ['googlechat.message'],
  make(input, setup) {
    const space = firstOf(setup, 'spaces', 'spaces/sample');
    const user = { name: 'users/1', displayName: 'Sample', type: 'HUMAN' };
    const body = JSON.stringify({
      type: 'MESSAGE',
      eventTime: isoOf(input),
      space: { name: space, type: 'ROOM' },
      user,
      message: {
        name: `${space}/messages/${input.id}`,
        sender: user,
        text: `@Agent ${input.text}`,
        argumentText: ` ${input.text}`,
        thread: { name: `${space}/threads/${input.id}` },
      },
    });
    return unsignedSample(post(input, json, body, {}));
  },
};

const isoOf = (input: SampleInput) => new Date(input.nowMs).toISOString();
