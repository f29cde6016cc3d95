import { request as plain } from 'node:http';
import { request as secure } from 'node:https';
import { isIP } from 'node:net';
import { paceAnswer } from '../domain/paced-answers.ts';
import type { CheckedUrl } from '../domain/url-guard.ts';

export interface PostRequest {
  headers: Record<string, string>;
  body: string;
  /** For all of it, from the dialling to the head of the answer. */
  timeoutMs: number;
  signal: AbortSignal;
  /** So many bytes of the answer's body are read; none when left out. */
  answerBytes?: number;
}

export interface PostAnswer {
  status: number;
  /** The header Retry-After, as it came. */
  retryAfter: string | null;
  /** The first bytes of its body. */
  body: Buffer;
}

/**
 * A POST to an address that was checked: the name is not resolved again, and no redirect is followed. What is left of
 * the answer's body is thrown away unread. Rejects when there is no answer in time.
 */
export function postTo(
  target: CheckedUrl,
  { headers, body, timeoutMs, signal, answerBytes = 0 }: PostRequest,
): Promise<PostAnswer> {
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
    paceAnswer(sent);
    sent.once('error', reject);
    sent.once('response', (answer) => {
      const chunks: Buffer[] = [];
      let left = answerBytes;
      const finish = () => {
        const retryAfter = answer.headers['retry-after'] ?? null;
        resolve({ status: answer.statusCode ?? 0, retryAfter, body: Buffer.concat(chunks) });
        answer.destroy();
      };
      if (left <= 0) return finish();
      answer.on('data', (chunk: Buffer) => {
        chunks.push(chunk.subarray(0, left));
        left -= chunk.length;
        if (left <= 0) finish();
      });
      // Its head has said whether it was taken; a body that breaks off changes nothing about that.
      answer.once('end', finish);
      answer.once('error', finish);
    });
    sent.end(body);
  });
}
