import { createHmac } from 'node:crypto';

/**
 * Headers of a webhook (Standard Webhooks 1.0.0): one `v1` signature by each secret, any of which is enough for the
 * receiver. `seconds` is Unix time; `body` the exact text that is sent; secrets are `whsec_` and base64.
 */
export function signWebhook(
  id: string,
  seconds: number,
  body: string,
  secrets: readonly string[],
): Record<string, string> {
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${seconds}.${body}`).digest('base64')}`;
  });
  return {
    'webhook-id': id,
    'webhook-timestamp': String(seconds),
    'webhook-signature': signatures.join(' '),
  };
}
