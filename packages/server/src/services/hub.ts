import type { ConversationEvent } from '../domain/events.ts';

/** `events` are committed and without a gap; null = something may have been written elsewhere, read the log. */
export type HubListener = (events: ConversationEvent[] | null) => void;

/** Fan-out of committed events inside this process, by conversation. */
export interface Hub {
  publish(conversationId: string, events: ConversationEvent[]): void;
  /** Tells the followers of a conversation (null = of all) to read the log. */
  stale(conversationId: string | null): void;
  /** `isPatient`: it only waits for how things end, so that nothing is written sooner for it. */
  subscribe(conversationId: string, listener: HubListener, isPatient?: boolean): () => void;
  /** Whether somebody follows, patient or not. */
  isFollowed(conversationId: string): boolean;
  /** Whether somebody reads along: then deltas are written sooner. */
  isWatched(conversationId: string): boolean;
  /** Hears how far the conversation is told, until it is stopped. */
  heardFrom(conversationId: string): Heard;
  /** Told when the service drains, and soon when it does already: streams end then. */
  onDrain(listener: () => void): () => void;
  /** From now on the service drains. */
  drain(): void;
}

export interface Heard {
  /** Whether what is behind this seq was told, or may have been. */
  isBeyond(seq: number): boolean;
  stop(): void;
}

export function createHub(): Hub {
  const listeners = new Map<string, Set<HubListener>>();
  /** How many of a conversation's listeners are not patient. */
  const watchers = new Map<string, number>();
  const drains = new Set<() => void>();
  let isDraining = false;
  const hub: Hub = {
    publish(conversationId, events) {
      const set = listeners.get(conversationId);
      if (set) for (const listener of set) listener(events);
    },
    stale(conversationId) {
      const sets = conversationId === null ? [...listeners.values()] : [listeners.get(conversationId) ?? []];
      for (const set of sets) for (const listener of set) listener(null);
    },
    subscribe(conversationId, listener, isPatient = false) {
      const set = listeners.get(conversationId) ?? new Set();
      listeners.set(conversationId, set);
      set.add(listener);
      if (!isPatient) watchers.set(conversationId, (watchers.get(conversationId) ?? 0) + 1);
      return () => {
        if (!set.delete(listener)) return;
        if (set.size === 0 && listeners.get(conversationId) === set) listeners.delete(conversationId);
        if (isPatient) return;
        const others = watchers.get(conversationId)! - 1;
        if (others === 0) watchers.delete(conversationId);
        else watchers.set(conversationId, others);
      };
    },
    heardFrom(conversationId) {
      let last = 0;
      const hear: HubListener = (events) => {
        last = Math.max(last, events === null ? Infinity : (events.at(-1)?.seq ?? 0));
      };
      return { isBeyond: (seq) => last > seq, stop: hub.subscribe(conversationId, hear, true) };
    },
    isFollowed: (conversationId) => listeners.has(conversationId),
    isWatched: (conversationId) => watchers.has(conversationId),
    onDrain(listener) {
      drains.add(listener);
      // Not before whoever asks has got the means to be told no more.
      if (isDraining) queueMicrotask(() => void (drains.has(listener) && listener()));
      return () => drains.delete(listener);
    },
    drain() {
      isDraining = true;
      for (const listener of drains) listener();
    },
  };
  return hub;
}
