/**
 * `events`: conversation ids; `lanes`: conversation ids that became ready; `cancel`: run ids; `keys`: key hashes;
 * `agents`: agents whose row changed; `budgets`: organisations and agents; `egress`: agents; `nodes`: replicas that are
 * there anew, which are rung from then on.
 */
export type Topic = 'events' | 'lanes' | 'cancel' | 'keys' | 'agents' | 'budgets' | 'egress' | 'nodes';

/** Wakes other replicas after a commit. A ring carries no truth: whoever hears it reads the rows. */
export interface Doorbell {
  /** Rings are joined for a few milliseconds; never inside a writing transaction. Handlers here are not called. */
  ring(topic: Topic, id: string): void;
  on(topic: Topic, handler: (ids: string[]) => void): void;
  /** Rings may have been missed: whoever follows something reads again. */
  onReconnect(handler: () => void): void;
  /** How many other replicas live: without any, nothing is rung. */
  setPeers(others: number): void;
  close(): Promise<void>;
}
