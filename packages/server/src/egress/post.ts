import { request as plain } from 'node:http';
import { request as secure } from 'node:https';
import { isIP } from 'node:net';
import type { CheckedUrl } from '../domain/url-guard.ts';

export interface PostRequest {
  headers: Record<string, string>;
  body: string;
  /** For all of it, from the dialling to the head of the answer. */
  timeoutMs: number;
  signal: AbortSignal;
}

/**
 * A POST to an address that was checked: the name is not resolved again, and no redirect is followed. The answer's body
 * is thrown away unread. Rejects when there is no answer in time.
 */
export function postTo(
  target: CheckedUrl,
  { headers, body, timeoutMs, signal }: PostRequest,
): Promise<{ status: number }> {
  const { url, addresses } = target;
  const request = url.protocol === 'https:' ? secure : plain;
  const [address] = addresses;
  if (address === undefined) return Promise.reject(new Error('There is no address to dial.'));
  return new Promise((resolve, reject) => {
    const sent = request(url, {
      method: 'POST',
      headers: { ...headers, 'Content-Length': String(Buffer.byteLength(body)), 'User-Agent': 'berth' },
      // A connection that is kept would outlive the check of its address.
      agent: false,
      signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
      lookup: (_name, options, done) => {
        const family = isIP(address);
        if (options.all) done(null, [{ address, family }]);
        else done(null, address, family);
      },
    });
    sent.once('error', reject);
    sent.once('response', (answer) => {
      resolve({ status: answer.statusCode ?? 0 });
      answer.destroy();
    });
    sent.end(body);
  });
}
