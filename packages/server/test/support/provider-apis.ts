import { createHash } from 'node:crypto';
import { genericHmacFixture, genericTokenFixture, signStandardly } from '../channels/fixtures/code.ts';
import type { Fixture } from '../channels/fixtures/fixture.ts';
import { snsCertificate } from '../channels/fixtures/mail.ts';
import { keySet } from '../channels/fixtures/tokens.ts';
import type { ProviderAnswer, ProviderCall } from './provider-stand-in.ts';

/** A message that the service has asked a provider to send. */
export interface Answered {
  /** Whom or what it answers, in the provider's own words. */
  to: string;
  text: string;
  /** Under which the provider makes no second one, where it knows such a thing. */
  once?: string;
  /** By which it may be looked for later. */
  mark?: string;
}

export interface ProviderApi {
  /** `to` of the answer to the message with this id, said in the place of the same number. */
  to(id: string): string;
  /** What the call sends; null: it sends nothing. Only with the right credentials. */
  sends(call: ProviderCall): Answered | null;
  /** What is said to that; `number` counts from 1. */
  taken(number: number, answered: Answered): ProviderAnswer;
  /** What is said to another one under the same `once`; left out: the same. */
  takenBefore?: ProviderAnswer;
  /** All else that such a channel asks; null: nobody answers that. */
  asked?(call: ProviderCall, answers: Answered[], url: string): ProviderAnswer | null;
}

// oxlint-disable-next-line no-explicit-any -- bodies of all providers
const jsonOf = (call: ProviderCall): any => JSON.parse(call.body);
const pathOf = (call: ProviderCall) => new URL(call.path, 'http://provider').pathname;
const queryOf = (call: ProviderCall) => new URL(call.path, 'http://provider').searchParams;
const isPost = (call: ProviderCall, path: string) => call.method === 'POST' && pathOf(call) === path;
const isGet = (call: ProviderCall, path: string) => call.method === 'GET' && pathOf(call) === path;
const hasBearer = (call: ProviderCall, token: string) => call.headers.authorization === `Bearer ${token}`;
const hasBasic = (call: ProviderCall, user: string, password: string) =>
  call.headers.authorization === `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
const md5 = (text: string) => createHash('md5').update(text).digest('hex');

const slack: ProviderApi = {
  to: (id) => `1759999999.00000${id}`,
  sends(call) {
    if (!isPost(call, '/chat.postMessage') || !hasBearer(call, 'xoxb-slack-bot-token-1')) return null;
    const { thread_ts: to, markdown_text: text, metadata } = jsonOf(call);
    return { to, text, mark: metadata.event_payload.mark };
  },
  taken: (number) => ({ body: { ok: true, ts: `1.${number}` } }),
  asked(call, answers) {
    if (!isGet(call, '/conversations.replies') || !hasBearer(call, 'xoxb-slack-bot-token-1')) return null;
    const found = answers.filter(({ to }) => to === queryOf(call).get('ts'));
    const messages = found.map(({ text, mark }) => ({ text, metadata: { event_payload: { mark } } }));
    return { body: { ok: true, messages } };
  },
};

const telegram: ProviderApi = {
  to: (id) => `1111${id}`,
  sends(call) {
    if (!isPost(call, '/bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/sendMessage')) return null;
    const { chat_id: to, text } = jsonOf(call);
    return { to: String(to), text };
  },
  taken: (number) => ({ body: { ok: true, result: { message_id: number } } }),
};

const discord: ProviderApi = {
  to: (id) => `aW50ZXJhY3Rpb24${id}`,
  sends(call) {
    const path = /^\/webhooks\/845027738276462632\/(\w+)\/messages\/@original$/.exec(pathOf(call));
    if (call.method !== 'PATCH' || !path) return null;
    // It fills what waits, so that it may be done twice.
    return { to: path[1]!, text: jsonOf(call).content, once: path[1]! };
  },
  taken: (number) => ({ body: { id: String(number) } }),
};

const whatsapp: ProviderApi = {
  to: (id) => `wamid.HBgLMTY1MDM4Nzk0MzkV${id}`,
  sends(call) {
    if (!isPost(call, '/106540352242922/messages') || !hasBearer(call, 'EAAG-whatsapp-access-1')) return null;
    const { context, text } = jsonOf(call);
    return { to: context.message_id, text: text.body };
  },
  taken: (number) => ({ body: { messages: [{ id: `wamid.${number}` }] } }),
};

const twilioPath = '/2010-04-01/Accounts/AC0000000000000000000000000000000a/Messages.json';
const isTwilio = (call: ProviderCall) =>
  hasBasic(call, 'AC0000000000000000000000000000000a', 'twilio-token-1');
const twilio: ProviderApi = {
  to: (id) => `+15550783881${id}`,
  sends(call) {
    if (!isPost(call, twilioPath) || !isTwilio(call)) return null;
    const form = new URLSearchParams(call.body);
    if (form.get('To') !== '+4915112345678') return null;
    return { to: form.get('From')!, text: form.get('Body')! };
  },
  taken: (number) => ({ status: 201, body: { sid: `SM${number}` } }),
  asked(call, answers) {
    if (!isGet(call, twilioPath) || !isTwilio(call)) return null;
    const found = answers.filter(({ to }) => to === queryOf(call).get('From'));
    const now = new Date().toUTCString();
    const messages = found.map(({ text }) => ({
      direction: 'outbound-api',
      status: 'sent',
      date_created: now,
      body: text,
    }));
    return { body: { messages } };
  },
};

const teams: ProviderApi = {
  to: (id) => `148598340851${id}`,
  sends(call) {
    const path = /^\/emea\/v3\/conversations\/[^/]+\/activities\/(\d+)$/.exec(pathOf(call));
    if (call.method !== 'POST' || !path || !hasBearer(call, 'teams-access-1')) return null;
    return { to: path[1]!, text: jsonOf(call).text };
  },
  taken: (number) => ({ body: { id: String(number) } }),
  asked(call, _answers, url) {
    if (isGet(call, '/v1/.well-known/openidconfiguration'))
      return { body: { jwks_uri: `${url}/v1/.well-known/keys` } };
    if (isGet(call, '/v1/.well-known/keys')) return { raw: keySet };
    if (!isPost(call, '/botframework.com/oauth2/v2.0/token')) return null;
    const isOurs = new URLSearchParams(call.body).get('client_secret') === 'teams-app-password-1';
    return isOurs ? { body: { access_token: 'teams-access-1' } } : { status: 401, body: {} };
  },
};

const googleChat: ProviderApi = {
  to: (id) => `spaces/AAAA/threads/BBBB${id}`,
  sends(call) {
    if (!isPost(call, '/v1/spaces/AAAA/messages') || !hasBearer(call, 'chat-access-1')) return null;
    const { text, thread } = jsonOf(call);
    return { to: thread.name, text, once: queryOf(call).get('requestId')! };
  },
  taken: (number) => ({ body: { name: `spaces/AAAA/messages/${number}` } }),
  asked(call) {
    if (isGet(call, '/oauth2/v3/certs')) return { raw: keySet };
    if (!isPost(call, '/token')) return null;
    const isOurs = new URLSearchParams(call.body).get('assertion')?.split('.').length === 3;
    return isOurs ? { body: { access_token: 'chat-access-1' } } : { status: 401, body: {} };
  },
};

const github: ProviderApi = {
  to: (id) => `7${id}`,
  sends(call) {
    const path = /^\/repos\/octo\/hello\/issues\/(\d+)\/comments$/.exec(pathOf(call));
    if (call.method !== 'POST' || !path || !hasBearer(call, 'ghp_github-token-1')) return null;
    return { to: path[1]!, text: jsonOf(call).body };
  },
  taken: (number) => ({ status: 201, body: { id: number } }),
  asked(call, answers) {
    const path = /^\/repos\/octo\/hello\/issues\/(\d+)\/comments$/.exec(pathOf(call));
    if (call.method !== 'GET' || !path || !hasBearer(call, 'ghp_github-token-1')) return null;
    return { body: answers.filter(({ to }) => to === path[1]).map(({ text }) => ({ body: text })) };
  },
};

const gitlab: ProviderApi = {
  to: (id) => `17${id}`,
  sends(call) {
    const path =
      /^\/projects\/5\/issues\/(\d+)\/discussions\/6a9c1750b37d513a43987b574953fceb50b03ce7\/notes$/;
    const found = path.exec(pathOf(call));
    if (call.method !== 'POST' || !found || call.headers['private-token'] !== 'glpat-gitlab-token-1')
      return null;
    return { to: found[1]!, text: jsonOf(call).body };
  },
  taken: (number) => ({ status: 201, body: { id: number } }),
  asked(call, answers) {
    const found = /^\/projects\/5\/issues\/(\d+)\/notes$/.exec(pathOf(call));
    if (call.method !== 'GET' || !found || call.headers['private-token'] !== 'glpat-gitlab-token-1')
      return null;
    return { body: answers.filter(({ to }) => to === found[1]).map(({ text }) => ({ body: text })) };
  },
};

const linear: ProviderApi = {
  to: (id) => `issue-1${id}`,
  sends(call) {
    if (!isPost(call, '/graphql') || call.headers.authorization !== 'lin_api_linear-key-1') return null;
    const { id, issueId, body } = jsonOf(call).variables.input;
    return { to: issueId, text: body, once: id };
  },
  taken: (number) => ({
    body: { data: { commentCreate: { success: true, comment: { id: `c${number}` } } } },
  }),
  takenBefore: { body: { errors: [{ message: 'conflict on insert of Comment: it already exists' }] } },
};

/** `isOurs`: whether the headers of the answer prove the channel's secret over its body. */
const generic = (to: (id: string) => string, isOurs: (call: ProviderCall) => boolean): ProviderApi => ({
  to,
  sends(call) {
    if (!isPost(call, '/answers') || !isOurs(call)) return null;
    const { type, data } = jsonOf(call);
    if (type !== 'agent.answer') return null;
    return { to: data.deliveryId, text: data.text, once: String(call.headers['webhook-id']) };
  },
  taken: () => ({ status: 204, raw: '' }),
});

/** Whether a sender who signs the same body at the same time comes to the header that the answer has. */
function signedAs(sign: Fixture['sign'], header: string, time: string | null) {
  return (call: ProviderCall): boolean => {
    const atMs = time === null ? 0 : Number(call.headers[time]) * 1_000;
    const signed = Object.entries(sign({ body: call.body }, atMs));
    return signed.some(([name, value]) => name.toLowerCase() === header && call.headers[header] === value);
  };
}

/** Mail is known by the message that it answers. */
const mailTo = (id: string) => `<q${id}@example.com>`;
type Mail = Pick<ProviderApi, 'taken'> & Partial<ProviderApi>;
const mail = (api: Mail & Pick<ProviderApi, 'sends'>): ProviderApi => ({ to: mailTo, ...api });

const resend = mail({
  sends(call) {
    if (!isPost(call, '/emails') || !hasBearer(call, 're_resend-api-key-1')) return null;
    const { headers, text } = jsonOf(call);
    return { to: headers['In-Reply-To'], text, once: String(call.headers['idempotency-key']) };
  },
  taken: (number) => ({ body: { id: `mail-${number}` } }),
  // The webhook tells of a mail; what it says is asked for.
  asked(call) {
    const id = /^\/emails\/receiving\/56761188-7520-42d8-8898-ff6fc54ce61(\d+)$/.exec(pathOf(call))?.[1];
    if (id === undefined || !hasBearer(call, 're_resend-api-key-1')) return null;
    const from = 'Ada Lovelace <ada@example.com>';
    const isEmpty = id === emptyId;
    const text = isEmpty ? '' : id === '1' ? 'Is it up?' : numbered(id);
    return {
      body: {
        from,
        subject: isEmpty ? '' : 'Question',
        text,
        html: null,
        headers: {},
        message_id: mailTo(id),
      },
    };
  },
});

const postmark = mail({
  sends(call) {
    if (!isPost(call, '/email') || call.headers['x-postmark-server-token'] !== 'postmark-server-token-1')
      return null;
    const { Headers, TextBody, Metadata } = jsonOf(call);
    const to = Headers.find(({ Name }: { Name: string }) => Name === 'In-Reply-To').Value;
    return { to, text: TextBody, mark: Metadata.berth };
  },
  taken: (number) => ({ body: { MessageID: String(number) } }),
  asked(call, answers) {
    if (
      !isGet(call, '/messages/outbound') ||
      call.headers['x-postmark-server-token'] !== 'postmark-server-token-1'
    )
      return null;
    const found = answers.filter(({ mark }) => mark === queryOf(call).get('metadata_berth'));
    return {
      body: { TotalCount: found.length, Messages: found.map((_, index) => ({ MessageID: String(index) })) },
    };
  },
});

const mailgun = mail({
  sends(call) {
    if (!isPost(call, '/v3/berth.example/messages') || !hasBasic(call, 'api', 'key-mailgun-api-1'))
      return null;
    const form = new URLSearchParams(call.body);
    return {
      to: form.get('h:In-Reply-To')!,
      text: form.get('text')!,
      mark: form.get('h:Message-ID')!.slice(1, -1),
    };
  },
  taken: (number) => ({ body: { id: `<${number}@mailgun>` } }),
  asked(call, answers) {
    if (!isGet(call, '/v3/berth.example/events') || !hasBasic(call, 'api', 'key-mailgun-api-1')) return null;
    const found = answers.filter(({ mark }) => mark === queryOf(call).get('message-id'));
    return { body: { items: found.map(({ mark }) => ({ message: { headers: { 'message-id': mark } } })) } };
  },
});

const sendgrid = mail({
  sends(call) {
    if (!isPost(call, '/v3/mail/send') || !hasBearer(call, 'SG.sendgrid-api-key-1')) return null;
    const { headers, content } = jsonOf(call);
    return { to: headers['In-Reply-To'], text: content[0].value };
  },
  taken: () => ({ status: 202, raw: '' }),
});

const ses = mail({
  sends(call) {
    const isOurs = call.headers.authorization?.startsWith('AWS4-HMAC-SHA256 Credential=AKIA1/') === true;
    if (!isPost(call, '/v2/email/outbound-emails') || !isOurs) return null;
    const [head = '', body = ''] = Buffer.from(jsonOf(call).Content.Raw.Data, 'base64')
      .toString()
      .split('\r\n\r\n');
    const to = /^In-Reply-To: (.*)$/m.exec(head)![1]!;
    return { to, text: Buffer.from(body, 'base64').toString() };
  },
  taken: (number) => ({ body: { MessageId: `ses-${number}` } }),
  asked(call) {
    if (isGet(call, '/SimpleNotificationService-1.pem')) return { raw: snsCertificate };
    // A subscription is confirmed.
    return isGet(call, '/') && queryOf(call).get('Action') === 'ConfirmSubscription' ? { raw: '' } : null;
  },
});

const generics: Record<string, ProviderApi> = {
  'generic, Standard Webhooks': generic(
    (id) => `msg_${id}`,
    (call) => {
      const sign: Fixture['sign'] = (request, atMs, secret) =>
        signStandardly(request, atMs, secret, String(call.headers['webhook-id']));
      return signedAs(sign, 'webhook-signature', 'webhook-timestamp')(call);
    },
  ),
  'generic, HMAC header': generic(
    (id) => id,
    signedAs(genericHmacFixture.sign, 'x-shop-signature', 'x-shop-signature-time'),
  ),
  'generic, token header': generic((id) => id, signedAs(genericTokenFixture.sign, 'x-shop-key', null)),
};

/** The id of the message that says nothing. */
export const emptyId = '3';

/** What a message with another id says; the agent repeats it. It names the agent in every kind's own way. */
export const numbered = (id: string) => `<@U0BOT> @berth is ${md5(id)} up?`;

/** What of it is found again in the answer. */
export const numberedMark = md5;

const mails: Record<string, ProviderApi> = {
  'email, raw MIME': resend,
  'email, over SMTP': resend,
  'email, Postmark': postmark,
  'email, Mailgun': mailgun,
  'email, SendGrid': sendgrid,
  'email, Resend': resend,
  'email, SES over SNS': ses,
};

/** The API of the provider behind a fixture. */
export function providerApi(fixture: Fixture): ProviderApi {
  switch (fixture.kind) {
    case 'slack':
      return slack;
    case 'telegram':
      return telegram;
    case 'discord':
      return discord;
    case 'whatsapp':
      return whatsapp;
    case 'twilio':
      return twilio;
    case 'teams':
      return teams;
    case 'googlechat':
      return googleChat;
    case 'github':
      return github;
    case 'gitlab':
      return gitlab;
    case 'linear':
      return linear;
    case 'email':
      return mails[fixture.title]!;
    case 'generic':
      return generics[fixture.title]!;
  }
}
