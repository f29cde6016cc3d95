import { createHash, createHmac } from 'node:crypto';
import type { HttpCall } from '../../domain/ports/channel.ts';

export interface AwsKeys {
  accessKeyId: string;
  secretAccessKey: string;
  region: string;
  service: string;
}

const hex = (bytes: string) => createHash('sha256').update(bytes).digest('hex');
const mac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();
const encode = (text: string) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);

/** Signature version 4 (docs.aws.amazon.com, "Create a signed AWS API request"). The path must be encoded already. */
export function signAws(call: HttpCall, keys: AwsKeys, nowMs: number): HttpCall {
  const time = new Date(nowMs).toISOString().replace(/[-:]|\.\d{3}/g, '');
  const day = time.slice(0, 8);
  const url = new URL(call.url);
  const bodyHash = hex(call.body ?? '');
  const headers: Record<string, string> = {
    ...call.headers,
    host: url.host,
    'x-amz-date': time,
    'x-amz-content-sha256': bodyHash,
  };
  const names = Object.keys(headers).sort();
  const query = [...url.searchParams]
    .map(([name, value]) => `${encode(name)}=${encode(value)}`)
    .sort()
    .join('&');
  const canonical = [
    call.method,
    url.pathname,
    query,
    ...names.map((name) => `${name}:${headers[name]!.trim().replace(/ +/g, ' ')}`),
    '',
    names.join(';'),
    bodyHash,
  ].join('\n');
  const scope = `${day}/${keys.region}/${keys.service}/aws4_request`;
  const toSign = ['AWS4-HMAC-SHA256', time, scope, hex(canonical)].join('\n');
  const key = [keys.region, keys.service, 'aws4_request'].reduce<Buffer>(
    mac,
    mac(`AWS4${keys.secretAccessKey}`, day),
  );
  const signature = mac(key, toSign).toString('hex');
  const { host: _host, ...sent } = headers;
  return {
    ...call,
    headers: {
      ...sent,
      authorization: `AWS4-HMAC-SHA256 Credential=${keys.accessKeyId}/${scope}, SignedHeaders=${names.join(';')}, Signature=${signature}`,
    },
  };
}
