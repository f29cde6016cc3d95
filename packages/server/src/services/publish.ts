import { endsRun, type ConversationEvent, type EventBody } from '../domain/events.ts';
import type { Doorbell } from '../domain/ports/doorbell.ts';
import type { Hub } from './hub.ts';

/** Hands committed events on: to followers here at once, to other replicas by the doorbell. */
export interface Publish {
  (place: { conversationId: string; runId: string }, events: EventBody[], firstSeq: number, at: Date): void;
  /** Events as the database gave them back. */
  written(events: ConversationEvent[]): void;
  /** Something was committed that is not at hand here: the log has it. */
  stale(conversationId: string): void;
  /** Told of conversations in which a run ended otherwise than by its owner here. */
  onEnded(listener: (conversationId: string) => void): void;
}

export function createPublish(hub: Hub, doorbell: Doorbell): Publish {
  const listeners: ((conversationId: string) => void)[] = [];
  const publish: Publish = ({ conversationId, runId }, events, firstSeq, at) => {
    if (events.length === 0) return;
    if (hub.isFollowed(conversationId)) {
      hub.publish(
        conversationId,
        events.map((body, index) => ({ ...body, conversationId, runId, seq: firstSeq + index, at })),
      );
    }
    doorbell.ring('events', conversationId);
  };
  publish.written = (events) => {
    for (const event of events) {
      hub.publish(event.conversationId, [event]);
      doorbell.ring('events', event.conversationId);
      if (endsRun(event.type)) for (const listener of listeners) listener(event.conversationId);
    }
  };
  publish.onEnded = (listener) => void listeners.push(listener);
  publish.stale = (conversationId) => {
    hub.stale(conversationId);
    for (const listener of listeners) listener(conversationId);
    doorbell.ring('events', conversationId);
  };
  return publish;
}
