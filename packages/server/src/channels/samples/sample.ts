import type { ChannelSetup, InboundRequest } from '../../domain/ports/channel.ts';
import type { Sample, SampleInput } from '../../domain/ports/channel-sample.ts';
import { listOf } from '../specs.ts';

/** What one kind of channel can be sent as a sample. */
export interface SampleKind {
  names(setup: ChannelSetup): readonly string[];
  make(input: SampleInput, setup: ChannelSetup): Sample;
}

type Headers = Record<string, string>;

export function post(input: SampleInput, type: string, body: string, headers: Headers): InboundRequest {
  const all = Object.entries({ 'content-type': type, ...headers });
  return {
    method: 'POST',
    url: input.url,
    headers: new Map(all.map(([name, value]) => [name.toLowerCase(), value])),
    body: Buffer.from(body),
  };
}

export const signedSample = (...requests: InboundRequest[]): Sample => ({
  requests,
  isSigned: true,
  fetched: null,
});

export const unsignedSample = (request: InboundRequest): Sample => ({
  requests: [request],
  isSigned: false,
  fetched: null,
});

/** The first that the channel takes, so that its own filters let the sample through. */
export const firstOf = (setup: ChannelSetup, name: string, usual: string): string =>
  listOf(setup.settings, name)[0] ?? usual;

/** What the channel signs with now. */
export const secretOf = (setup: ChannelSetup, name: string): string => setup.credentials[name] ?? '';

export const unixSeconds = (input: SampleInput): string => String(Math.floor(input.nowMs / 1_000));

/** Digits that differ from sample to sample. */
export const numberOf = (input: SampleInput): string =>
  BigInt(`0x${hexOf(input)}`)
    .toString()
    .slice(-15);

export const hexOf = (input: SampleInput): string => Buffer.from(input.id).toString('hex').slice(-32);
