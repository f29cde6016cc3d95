import { verify as verifySignature, X509Certificate } from 'node:crypto';
import { limits } from '../../../domain/limits.ts';
import type {
  ChannelSetup,
  Documents,
  InboundEvent,
  InboundRequest,
  MailSource,
  Verdict,
} from '../../../domain/ports/channel.ts';
import {
  isObject,
  needText,
  objectAt,
  parseJson,
  readJsonBody,
  textAt,
  textsAt,
  type Json,
} from '../../body.ts';
import { getCall, jsonCall, segment } from '../../call.ts';
import { parsedDocument } from '../../documents.ts';
import { emptyAnswer, event } from '../../event.ts';
import { forged, genuine } from '../../signing.ts';
import { apiOf, textOf } from '../../specs.ts';
import { signAws } from '../aws-signature.ts';
import { mailEvent } from '../mail-event.ts';
import { mimeOf } from '../mime-message.ts';
import type { MailFetcher, MailReceiver, MailSender } from '../provider.ts';

/** SNS of any region, and nothing that only begins or ends like it. */
const snsHost = /^sns\.[a-z0-9-]{3,30}\.amazonaws\.com(\.cn)?$/;
const json = ['text/plain'];
const staleMs = 26 * 3_600_000;

/** Amazon SES over an SNS topic (docs.aws.amazon.com/sns, "Verifying the signatures of Amazon SNS messages"). */
export const sesReceiver: MailReceiver = {
  needs: [],
  verify: verifySns,
  parse(request, setup) {
    const body = readJsonBody(request, json);
    const id = needText(body, 'MessageId');
    const type = textAt(body, 'Type');
    if (type === 'SubscriptionConfirmation') {
      const url = textAt(body, 'SubscribeURL');
      const notice = event({ kind: 'email.subscription', deliveryKey: id, ignore: 'not_a_message' });
      const confirms = isSnsUrl(url, setup) ? { followUp: getCall(url) } : {};
      return { answer: emptyAnswer, events: [notice], ...confirms };
    }
    if (type !== 'Notification') {
      return {
        answer: emptyAnswer,
        events: [event({ kind: 'email.subscription', deliveryKey: id, ignore: 'not_a_message' })],
      };
    }
    const notice = parseJson(textAt(body, 'Message') ?? '', 'Message');
    return { answer: emptyAnswer, events: [readNotification(id, notice)] };
  },
};

function verifySns(
  request: InboundRequest,
  setup: ChannelSetup,
  nowMs: number,
  documents: Documents,
): Verdict {
  const body = safeBody(request);
  const certificateUrl = textAt(body, 'SigningCertURL') ?? textAt(body, 'SigningCertUrl');
  const signature = textAt(body, 'Signature');
  if (body === null || certificateUrl === null || signature === null) {
    return forged('signature_missing', 'Signature and SigningCertURL are needed.');
  }
  if (textAt(body, 'TopicArn') !== textOf(setup.settings, 'topicArn')) {
    return forged('signature_wrong', 'The message is of another topic than the setting topicArn.');
  }
  if (!isSnsUrl(certificateUrl, setup) || !new URL(certificateUrl).pathname.endsWith('.pem')) {
    return forged('signature_wrong', 'SigningCertURL does not lead to a certificate of Amazon SNS.');
  }
  const time = Date.parse(textAt(body, 'Timestamp') ?? '');
  if (!Number.isFinite(time)) return forged('signature_malformed', 'Timestamp is not a time.');
  // SNS signs once and may deliver for an hour, or a day with a policy of one's own; the message id stops replays.
  if (Math.abs(nowMs - time) > staleMs)
    return forged('signature_stale', 'The message is more than a day old.');
  const certificate = documents.get(certificateUrl);
  if (certificate === undefined) return { verdict: 'needs_document', url: certificateUrl };
  return isSigned(body, signature, certificate)
    ? genuine
    : forged('signature_wrong', 'The signature does not fit the certificate.');
}

function isSnsUrl(url: string | null, setup: ChannelSetup): url is string {
  if (url === null || url.length > 2_048 || !URL.canParse(url)) return false;
  const { protocol, hostname, port, username, password, origin } = new URL(url);
  if (username !== '' || password !== '') return false;
  if (setup.apiBaseUrl !== null && origin === new URL(setup.apiBaseUrl).origin) return true;
  return protocol === 'https:' && port === '' && snsHost.test(hostname);
}

/** Verification sees bodies of strangers: what is no JSON is simply not signed. */
function safeBody(request: InboundRequest): Json | null {
  if (request.body.length > limits.snsMessageBytes) return null;
  const value = parsedDocument(request.body.toString());
  return isObject(value) ? value : null;
}

function isSigned(body: Json, signature: string, certificate: string): boolean {
  const isNotification = body['Type'] === 'Notification';
  const names = isNotification
    ? ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type']
    : ['Message', 'MessageId', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type'];
  const text = names
    .filter((name) => typeof body[name] === 'string')
    .map((name) => `${name}\n${body[name] as string}\n`)
    .join('');
  const algorithm =
    body['SignatureVersion'] === '1' ? 'RSA-SHA1' : body['SignatureVersion'] === '2' ? 'RSA-SHA256' : null;
  if (algorithm === null) return false;
  try {
    const { publicKey } = new X509Certificate(certificate);
    return verifySignature(algorithm, Buffer.from(text), publicKey, Buffer.from(signature, 'base64'));
  } catch {
    return false;
  }
}

function readNotification(deliveryKey: string, value: Json): InboundEvent {
  if (textAt(value, 'notificationType') !== 'Received') {
    const isBounce = ['Bounce', 'Complaint'].includes(textAt(value, 'notificationType') ?? '');
    const kind = isBounce ? 'email.bounced' : 'email.event';
    return event({ kind, deliveryKey, ignore: isBounce ? 'bounce' : 'not_a_message' });
  }
  const receipt = objectAt(value, 'receipt');
  const verdict = (name: string) => textAt(receipt, name, 'status')?.toLowerCase() ?? null;
  const common = {
    envelope: {
      from: textAt(value, 'mail', 'source'),
      to: textsAt(receipt, 'recipients'),
    },
    verdicts: { spf: verdict('spfVerdict'), dkim: verdict('dkimVerdict'), dmarc: verdict('dmarcVerdict') },
  };
  const content = textAt(value, 'content');
  const isBase64 = textAt(receipt, 'action', 'encoding') === 'BASE64';
  const source: MailSource =
    content === null
      ? {
          ...common,
          form: 'fetch',
          from: 's3',
          what: {
            bucket: textAt(receipt, 'action', 'bucketName') ?? '',
            key: textAt(receipt, 'action', 'objectKey') ?? '',
          },
        }
      : { ...common, form: 'mime', raw: Buffer.from(content, isBase64 ? 'base64' : 'utf8') };
  const messageId = textAt(value, 'mail', 'commonHeaders', 'messageId') ?? textAt(value, 'mail', 'messageId');
  return mailEvent({ deliveryKey, messageId, source });
}

const awsKeys = (setup: ChannelSetup, service: string) => ({
  accessKeyId: setup.credentials['accessKeyId'] ?? '',
  secretAccessKey: setup.credentials['secretAccessKey'] ?? '',
  region: textOf(setup.settings, 'region') ?? 'us-east-1',
  service,
});

/** Mail of more than 150 KB lies in the bucket of the S3 action. */
export const s3Fetcher: MailFetcher = {
  call(what, setup, nowMs) {
    const keys = awsKeys(setup, 's3');
    const host = apiOf(setup, `https://s3.${keys.region}.amazonaws.com`);
    const key = (what['key'] ?? '').split('/').map(segment).join('/');
    return signAws(
      getCall(`${host}/${segment(what['bucket'] ?? '')}/${key}`, { accept: '*/*' }),
      keys,
      nowMs,
    );
  },
  read: (reply, source) => ({
    form: 'mime',
    raw: reply.body,
    envelope: source.envelope,
    verdicts: source.verdicts,
  }),
};

export const sesSender: MailSender = {
  needs: ['accessKeyId', 'secretAccessKey'],
  idPath: ['MessageId'],
  send(mail, answer, setup, nowMs) {
    const keys = awsKeys(setup, 'ses');
    const body = {
      FromEmailAddress: mail.from,
      Destination: { ToAddresses: [mail.to] },
      Content: { Raw: { Data: Buffer.from(mimeOf(mail)).toString('base64') } },
      EmailTags: [{ Name: 'berth', Value: answer.outboxId }],
    };
    const url = `${apiOf(setup, `https://email.${keys.region}.amazonaws.com`)}/v2/email/outbound-emails`;
    const call = signAws(jsonCall('POST', url, body), keys, nowMs);
    return { call, repeat: 'again', lookup: null, mark: answer.outboxId };
  },
};
