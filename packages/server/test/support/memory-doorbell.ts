import type { Doorbell, Topic } from '../../src/domain/ports/doorbell.ts';

export interface Bells {
  /** A doorbell of one more replica. */
  join(): Doorbell;
  /** While it is set, rings reach nobody, as when the connection is down. */
  broken: boolean;
  /** As after a lost connection. */
  reconnect(): void;
}

/** Doorbells of several replicas in one process, ringing at once. */
export function memoryBells(): Bells {
  type Handler = (ids: string[]) => void;
  const replicas: { handlers: Map<Topic, Handler[]>; reconnected: (() => void)[] }[] = [];
  const bells: Bells = {
    broken: false,
    reconnect: () => replicas.forEach((replica) => replica.reconnected.forEach((handler) => handler())),
    join() {
      const own = { handlers: new Map<Topic, Handler[]>(), reconnected: [] as (() => void)[] };
      replicas.push(own);
      return {
        ring(topic, id) {
          if (bells.broken) return;
          for (const replica of replicas) {
            if (replica !== own) replica.handlers.get(topic)?.forEach((handler) => handler([id]));
          }
        },
        on: (topic, handler) => void own.handlers.set(topic, [...(own.handlers.get(topic) ?? []), handler]),
        onReconnect: (handler) => void own.reconnected.push(handler),
        close: async () => {},
        setPeers: () => {},
      };
    },
  };
  return bells;
}
