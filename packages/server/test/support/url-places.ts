import assert from 'node:assert/strict';
import { signed, type Unsigned } from '../channels/fixtures/fixture.ts';
import { address, resendFixture } from '../channels/fixtures/mail.ts';
import { message } from './a2a-world.ts';
import { hostFetch } from './host-fetch.ts';
import { providerStandIn } from './provider-stand-in.ts';
import type { Service } from './service.ts';
import { until } from './until.ts';

/** The one address that the operator has opened: whoever is there shows that what was refused would have been dialled. */
export const openHost = '127.0.0.9';

/** What a program of an agent does that has such MCP servers: it asks each, through the way out that the sandbox has. */
export const mcpClient = `
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
const { hosts } = JSON.parse(readFileSync('hosts.json', 'utf8'));
const proxy = new URL(process.env.http_proxy ?? process.env.HTTP_PROXY);
const initialize = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: {} });
const ask = (method, path) => new Promise((resolve) => {
  const headers = { host: path.replace(/^http:..|.mcp$/g, ''), 'content-type': 'application/json' };
  const sent = request({ host: proxy.hostname, port: proxy.port, method, path, headers, agent: false });
  sent.on('connect', (response, socket) => { socket.destroy(); resolve(response.statusCode); });
  sent.on('response', (response) => { response.resume(); resolve(response.statusCode); });
  sent.on('error', (error) => resolve(error.code));
  sent.end(method === 'POST' ? initialize : undefined);
});
const ends = [];
for (const host of process.argv[2] ? [process.argv[2]] : hosts)
  for (const [method, path] of [['POST', 'http://' + host + '/mcp'], ['CONNECT', host]])
    ends.push(host + ' ' + method + ' ' + (await ask(method, path)));
console.log('asked ' + ends.length + ', not refused: ' + JSON.stringify(ends.filter((end) => !/ 4[0-9]{2}$/.test(end))));
`;

/** A Resend of which each mail has these files; the service asks it what they are. */
export async function mails(filesOf: (id: string) => string[]) {
  return providerStandIn(({ method, path }) => {
    if (method === 'POST') return { body: { id: 'sent' } };
    const id = path.split('/').at(-1)!;
    const attachments = filesOf(id).map((download_url, index) => ({
      filename: `${index}.txt`,
      content_type: 'text/plain',
      download_url,
    }));
    return {
      body: {
        from: 'Ada <ada@example.com>',
        subject: 'Files',
        text: 'say: thanks',
        headers: {},
        attachments,
      },
    };
  }, openHost);
}

async function deliverMail(service: Service, channelId: string, id: string): Promise<void> {
  const data = { email_id: id, from: 'ada@example.com', to: [address], message_id: `<${id}@example.com>` };
  const unsigned: Unsigned = {
    body: JSON.stringify({ type: 'email.received', data }),
    headers: { 'x-test-id': id },
  };
  const { headers, body } = signed(resendFixture, unsigned, Date.now());
  const reply = await service.api('POST', `/api/webhooks/email/${channelId}`, body, {
    ...Object.fromEntries(headers),
    authorization: '',
  });
  assert.equal(reply.status, 200, reply.text);
}

export interface InboundEvent {
  id: string;
  state: string;
  reason: string | null;
  conversationId: string;
}

/** Those of an agent, newest first. */
export async function inboundEvents({ api }: Service, agentId: string): Promise<InboundEvent[]> {
  return (await api('GET', `/v1/agents/${agentId}/inbound-events?limit=100`)).body.events as InboundEvent[];
}

/** Gives an agent a mailbox at a stand-in of Resend; each mail that comes resolves with what was said of it, as JSON. */
export async function mailbox(
  service: Service,
  agentId: string,
  apiBaseUrl: string,
): Promise<(id: string) => Promise<string>> {
  const { api } = service;
  const { settings, credentials } = resendFixture;
  const fields = { kind: 'email', settings, credentials, apiBaseUrl };
  const made = await api('POST', `/v1/agents/${agentId}/channels`, fields);
  assert.equal(made.status, 201, made.text);
  return async (id) => {
    const before = new Set((await inboundEvents(service, agentId)).map((event) => event.id));
    await deliverMail(service, made.body.channel.id as string, id);
    const event = await until('the mail is answered', async () =>
      (await inboundEvents(service, agentId)).find((one) => !before.has(one.id) && one.state === 'done'),
    );
    return (await api('GET', `/v1/conversations/${event.conversationId}/messages`)).text;
  };
}

/** Sends a message by A2A that is to be told of at `url`. */
export function pushesTo(service: Service, agentId: string) {
  const fetchHost = hostFetch(service.port);
  return async (url: string) => {
    const params = { message: message('say: hi'), configuration: { taskPushNotificationConfig: { url } } };
    const response = await fetchHost(`http://${agentId}.localhost:${service.port}/a2a`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${service.key}`,
        'content-type': 'application/json',
        'a2a-version': '1.0',
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'SendMessage', params }),
    });
    return (await response.json()) as { error?: { code: number } };
  };
}
