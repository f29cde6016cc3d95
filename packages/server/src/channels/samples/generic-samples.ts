import type { ChannelSetup } from '../../domain/ports/channel.ts';
import type { SampleInput } from '../../domain/ports/channel-sample.ts';
import { signHmac } from '../generic/hmac.ts';
import { signStandard } from '../standard-webhooks.ts';
import { textOf } from '../specs.ts';
import { post, secretOf, signedSample, type SampleKind } from './sample.ts';

/** An event of any type, with a value wherever the channel's templates look for one. */
export const genericSamples: SampleKind = {
  names: () => ['generic.event', 'generic.*'],
  make(input, setup) {
    const body = JSON.stringify(payload(input, setup));
    const seconds = Math.floor(input.nowMs / 1_000);
    const secret = secretOf(setup, 'secret');
    const id = `msg_${input.id}`;
    const scheme = textOf(setup.settings, 'scheme') ?? 'standard';
    const proof =
      scheme === 'standard'
        ? signStandard(id, seconds, body, secret)
        : { 'webhook-id': id, ...signHmac(setup, secret, seconds, body) };
    return signedSample(post(input, 'application/json', body, { ...headersIn(input, setup), ...proof }));
  },
};

const templates = ['text', 'conversation', 'deliveryId', 'messageId', 'sender', 'type'];

/** Names in the templates of the channel, and what each is given. */
function wanted(input: SampleInput, setup: ChannelSetup): [path: string, value: string][] {
  const values: Record<string, string> = {
    text: input.text,
    type: input.event.slice('generic.'.length),
    sender: 'sample',
  };
  return templates.flatMap((name) =>
    [...(textOf(setup.settings, name) ?? '').matchAll(/\{\{\s*([^{}]{1,200}?)\s*\}\}/g)].map(
      ([, path]): [string, string] => [path!, values[name] ?? `sample-${input.id}`],
    ),
  );
}

function payload(input: SampleInput, setup: ChannelSetup): Record<string, unknown> {
  const body: Record<string, unknown> = {
    type: input.event.slice('generic.'.length),
    timestamp: new Date(input.nowMs).toISOString(),
    data: {},
  };
  const paths = wanted(input, setup).filter(([path]) => path !== 'body' && !path.startsWith('header:'));
  for (const [path, value] of paths) putAt(body, path.split('.').slice(0, 20), value);
  if (!paths.some(([, value]) => value === input.text)) body['data'] = { text: input.text };
  return body;
}

/** Makes what is missing on the way; a number names a place in a list, and what is there already stays. */
function putAt(body: object, path: string[], value: string): void {
  let at = body as Record<string, unknown>;
  for (const [index, name] of path.entries()) {
    if (name === '__proto__' || (Array.isArray(at) && !/^\d{1,2}$/.test(name))) return;
    if (index === path.length - 1) {
      at[name] ??= value;
      return;
    }
    at[name] ??= /^\d{1,2}$/.test(path[index + 1]!) ? [] : {};
    const next = at[name];
    if (typeof next !== 'object' || next === null) return;
    at = next as Record<string, unknown>;
  }
}

function headersIn(input: SampleInput, setup: ChannelSetup): Record<string, string> {
  return Object.fromEntries(
    wanted(input, setup)
      .filter(([path]) => /^header:\s*[a-z0-9-]{1,100}$/i.test(path))
      .map(([path, value]) => [path.slice('header:'.length).trim().toLowerCase(), value]),
  );
}
