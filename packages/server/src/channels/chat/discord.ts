import { createPublicKey, verify as verifySignature } from 'node:crypto';
import { invalid } from '../../domain/errors.ts';
import type { Answer, Attachment, ChannelKind, ChannelSetup, ReplyStep } from '../../domain/ports/channel.ts';
import {
  at,
  isObject,
  listAt,
  needText,
  objectAt,
  readJsonBody,
  textAt,
  textsAt,
  type Json,
} from '../body.ts';
import { getCall, jsonCall, readStatus, segment } from '../call.ts';
import { event, jsonAnswer, withoutEmpty } from '../event.ts';
import { forged, genuine, readSeconds, staleness } from '../signing.ts';
import { splitText } from '../split.ts';
import { allows, apiOf, leadsTo, required, sentToApi, setting } from '../specs.ts';

const contentChars = 2_000;
const fileHosts = ['cdn.discordapp.com', 'media.discordapp.net'];
/** SubjectPublicKeyInfo of an Ed25519 key, before its 32 bytes (RFC 8410). */
const spkiHead = Buffer.from('302a300506032b6570032100', 'hex');

/** Interactions: commands, buttons, dialogs. Plain messages need Discord's gateway, which is no webhook. */
export const discord: ChannelKind = {
  name: 'discord',
  bodyBytes: 1024 * 1024,
  methods: ['POST'],
  whenBusy: 503,
  lane: () => 'reserved',
  paceMs: 500,
  credentials: [
    required('publicKey', 'The public key of the Discord application (General Information), 64 hex digits.'),
  ],
  settings: [
    setting('guilds', 'texts', 'Ids of servers to take interactions from; none given: all.'),
    setting('channels', 'texts', 'Ids of Discord channels to take interactions from; none given: all.'),
  ],
  signing: () => ({ credential: 'publicKey', made: 'given' }),
  sentTo: sentToApi(),
  check({ credentials }) {
    if (!/^[0-9a-f]{64}$/i.test(credentials['publicKey'] ?? '')) {
      throw invalid('credentials.publicKey', 'must be 64 hexadecimal digits.');
    }
  },
  verify(request, setup, nowMs) {
    const signature = request.headers.get('x-signature-ed25519');
    const timestamp = request.headers.get('x-signature-timestamp');
    if (!signature || !timestamp) {
      return forged(
        'signature_missing',
        'The headers X-Signature-Ed25519 and X-Signature-Timestamp are needed.',
      );
    }
    if (!/^[0-9a-f]{128}$/i.test(signature)) {
      return forged('signature_malformed', 'X-Signature-Ed25519 must be 128 hexadecimal digits.');
    }
    const stale = staleness(readSeconds(timestamp), nowMs, 300);
    if (stale) return stale;
    const signed = Buffer.concat([Buffer.from(timestamp), request.body]);
    const keys = [setup.credentials['publicKey'], setup.previousSecret];
    const isGenuine = keys.some((key) => key && isSignedWith(key, signed, Buffer.from(signature, 'hex')));
    return isGenuine
      ? genuine
      : forged('signature_wrong', 'The signature does not fit; check the public key.');
  },
  parse(request, setup) {
    const body = readJsonBody(request);
    if (at(body, 'type') === 1) return { answer: jsonAnswer({ type: 1 }), events: [] };
    // 5: "thinking …", to be filled within 15 minutes.
    return { answer: jsonAnswer({ type: 5 }), events: [readInteraction(body, setup)] };
  },
  reply: replySteps,
  readReply: (reply) => readStatus(reply, ['id']),
  stream: null,
};

function isSignedWith(publicKeyHex: string, signed: Buffer, signature: Buffer): boolean {
  const der = Buffer.concat([spkiHead, Buffer.from(publicKeyHex, 'hex')]);
  try {
    return verifySignature(
      null,
      signed,
      createPublicKey({ key: der, format: 'der', type: 'spki' }),
      signature,
    );
  } catch {
    return false;
  }
}

const kinds: Record<number, string> = { 2: 'discord.command', 3: 'discord.component', 5: 'discord.modal' };

function readInteraction(body: Json, setup: ChannelSetup) {
  const id = needText(body, 'id');
  const token = needText(body, 'token');
  const applicationId = needText(body, 'application_id');
  const user = objectAt(body, isObject(at(body, 'member', 'user')) ? 'member' : 'user');
  const person = isObject(at(user, 'user')) ? objectAt(user, 'user') : user;
  const userId = textAt(person, 'id') ?? '';
  const channel = textAt(body, 'channel_id') ?? '';
  const isOurs =
    allows(setup.settings, 'guilds', textAt(body, 'guild_id')) && allows(setup.settings, 'channels', channel);
  const kind = kinds[Number(textAt(body, 'type'))];
  return withoutEmpty(
    event({
      kind: kind ?? 'discord.interaction',
      deliveryKey: id,
      messageKey: id,
      conversationKey: `${channel}:${userId}`,
      text: interactionText(body),
      sender: { id: userId, name: textAt(person, 'username'), isBot: at(person, 'bot') === true },
      ignore: kind === undefined ? 'not_a_message' : isOurs ? null : 'not_addressed',
      attachments: readFiles(body, setup),
      replyTo: { applicationId, token },
    }),
  );
}

/** Texts, numbers and flags. */
const shown = (value: unknown): string =>
  typeof value === 'object' ? JSON.stringify(value) : String(value as string | number | boolean);

function interactionText(body: Json): string {
  const data = objectAt(body, 'data');
  const name = textAt(data, 'name');
  const lines = [name === null ? (textAt(data, 'custom_id') ?? '') : `/${name}`];
  const walk = (options: unknown[], depth: number) => {
    for (const option of options) {
      const value = at(option, 'value');
      const named = textAt(option, 'name') ?? textAt(option, 'custom_id') ?? '';
      lines.push(value === undefined ? named : `${named}: ${shown(value)}`);
      if (depth < 3) walk([...listAt(option, 'options'), ...listAt(option, 'components')], depth + 1);
    }
  };
  walk(listAt(data, 'options'), 0);
  for (const row of listAt(data, 'components')) walk(listAt(row, 'components'), 0);
  lines.push(...textsAt(data, 'values'));
  const targets = objectAt(data, 'resolved', 'messages');
  for (const target of Object.values(targets)) lines.push(textAt(target, 'content') ?? '');
  return lines.filter((line) => line !== '').join('\n');
}

function readFiles(body: Json, setup: ChannelSetup): Attachment[] {
  return Object.values(objectAt(body, 'data', 'resolved', 'attachments')).flatMap((file) => {
    const url = textAt(file, 'url');
    if (!leadsTo(url, fileHosts, setup)) return [];
    const size = at(file, 'size');
    return {
      name: textAt(file, 'filename') ?? 'file',
      mediaType: textAt(file, 'content_type') ?? 'application/octet-stream',
      sizeBytes: typeof size === 'number' ? size : null,
      content: { at: 'call', call: getCall(url, { accept: '*/*' }) },
    } satisfies Attachment;
  });
}

/** The first part fills the waiting answer, which may be done twice; the others follow it. */
function replySteps(answer: Answer, setup: ChannelSetup): ReplyStep[] {
  const { applicationId, token } = answer.replyTo;
  const base = `${apiOf(setup, 'https://discord.com/api/v10')}/webhooks/${segment(String(applicationId))}/${segment(String(token))}`;
  return splitText(answer.text, contentChars).map((content, index) => {
    const body = { content, allowed_mentions: { parse: [] } };
    const mark = `${answer.outboxId}:${index}`;
    return index === 0
      ? { call: jsonCall('PATCH', `${base}/messages/@original`, body), repeat: 'same', lookup: null, mark }
      : { call: jsonCall('POST', `${base}?wait=true`, body), repeat: 'again', lookup: null, mark };
  });
}
