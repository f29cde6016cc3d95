import { createHmac } from 'node:crypto';
import type { Api } from './service.ts';
import { until } from './until.ts';

export interface MadeChannel {
  channelId: string;
  /** An event that came in and was ignored. */
  inboundEventId: string;
}

/** A channel of the agent, and one delivery to it: signed as its sender would, and saying nothing. */
export async function channelWithEvent(call: Api, serviceUrl: string, agentId: string): Promise<MadeChannel> {
  const made = await call('POST', `/v1/agents/${agentId}/channels`, {
    kind: 'generic',
    name: 'kept',
    settings: { text: '{{nothing}}', skipEmpty: true },
  });
  const { channel, secret } = made.body as { channel: { id: string; webhookUrl: string }; secret: string };
  const body = '{"type":"ping"}';
  const seconds = String(Math.floor(Date.now() / 1000));
  const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
  const signature = createHmac('sha256', key).update(`msg_1.${seconds}.${body}`).digest('base64');
  const headers = {
    'content-type': 'application/json',
    'webhook-id': 'msg_1',
    'webhook-timestamp': seconds,
    'webhook-signature': `v1,${signature}`,
  };
  await until('the delivery was taken', async () => {
    const url = new URL(new URL(channel.webhookUrl).pathname, serviceUrl);
    const answer = await fetch(url, { method: 'POST', headers, body });
    const text = await answer.text();
    // What could not be stored soon enough for every sender is sent again, as the answer says.
    if (answer.status === 503 && answer.headers.has('retry-after')) return false;
    if (answer.status !== 200) throw new Error(`The webhook answered ${answer.status}: ${text}`);
    return true;
  });
  let inboundEventId = '';
  await until('the event was worked on', async () => {
    const { events } = (await call('GET', `/v1/agents/${agentId}/inbound-events`)).body as {
      events: { id: string; channelId: string; state: string }[];
    };
    const found = events.find((event) => event.channelId === channel.id);
    inboundEventId = found?.id ?? '';
    return found?.state === 'ignored';
  });
  return { channelId: channel.id, inboundEventId };
}
