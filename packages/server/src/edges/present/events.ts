import type { ConversationEvent } from '../../domain/events.ts';

export interface EventView {
  seq: number;
  type: string;
  at: string;
  data: unknown;
}

/** The four public fields of an event (API contract, section 5). */
export function eventOf(event: ConversationEvent): EventView {
  return { seq: event.seq, type: event.type, at: event.at.toISOString(), data: event.data };
}
