import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import type { Principal } from '../domain/nouns.ts';
import type { ChannelSamples } from '../domain/ports/channel-sample.ts';
import { requireStorable } from '../domain/text.ts';
import type { InboundEventStore } from '../store/inbound-events.ts';
import type { ChannelsService, ChannelTested, ChannelTestInput } from './channels-api.ts';
import type { ChannelSetups } from './channels.ts';
import type { Inbox } from './inbox.ts';

export interface ChannelTestsDependencies {
  channels: Pick<ChannelsService, 'get'>;
  setups: ChannelSetups;
  samples: ChannelSamples;
  inbox: Pick<Inbox, 'receiveSample'>;
  events: Pick<InboundEventStore, 'get'>;
  /** As senders see the service: some sign the URL. */
  baseUrl: string;
}

const usualText = 'This is a sample message. Say in one sentence that it has reached you.';
const textChars = 4_000;

/** Samples are signed here, so that nobody needs the secret to try a channel. */
export function createChannelTests(deps: ChannelTestsDependencies): Pick<ChannelsService, 'test'> {
  return {
    async test(p: Principal, id: string, input: ChannelTestInput): Promise<ChannelTested> {
      await deps.channels.get(p, id);
      const found = await deps.setups.open(id);
      if (!found) throw notFound();
      const { row, setup } = found;
      if (row.status === 'paused')
        throw new DomainError('conflict', 'The channel is paused; resume it first.');
      const text = readText(input.text ?? usualText);
      const event = readEvent(input.event, deps.samples.names(row.kind, setup));
      const sample = deps.samples.make(
        row.kind,
        {
          event,
          text,
          id: newId().replaceAll('-', ''),
          url: `${deps.baseUrl}/api/webhooks/${row.kind}/${row.id}`,
          nowMs: Date.now(),
        },
        setup,
      );
      const mark = { isAnswered: input.isAnswered === true, fetched: sample.fetched };
      const ids = new Set<string>();
      let answer = { status: 200, body: '' };
      for (const request of sample.requests) {
        const received = await deps.inbox.receiveSample(found, request, {
          ...mark,
          isSigned: sample.isSigned,
        });
        answer = received.answer;
        for (const eventId of received.eventIds) ids.add(eventId);
      }
      const events = await Promise.all([...ids].map((eventId) => deps.events.get(eventId)));
      return {
        answer: { status: answer.status, body: answer.body },
        isVerified: sample.isSigned,
        // A second delivery of one event is no event of its own.
        events: events.filter((row) => row !== null),
      };
    },
  };
}

function readText(text: string): string {
  if (text.trim() === '' || text.length > textChars) {
    throw invalid('text', `must be a text of 1 to ${textChars} characters.`);
  }
  requireStorable('text', text);
  return text;
}

function readEvent(given: string | undefined, names: readonly string[]): string {
  const event = given ?? names[0]!;
  const isKnown = names.some((name) =>
    name.endsWith('*')
      ? event.startsWith(name.slice(0, -1)) && /^[a-z0-9_.-]{1,60}$/.test(event)
      : name === event,
  );
  if (!isKnown) throw invalid('event', `must be one of ${names.join(', ')} for this channel.`);
  return event;
}
