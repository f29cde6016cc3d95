import { newId } from '../domain/ids.ts';
import type { Log } from '../domain/log.ts';
import type { Doorbell, Topic } from '../domain/ports/doorbell.ts';
import { within } from '../domain/time-limit.ts';
import type { Database } from './database.ts';

const CHANNEL = 'berth_doorbell';
/** NOTIFY takes a lock of the whole database at commit, so rings of some milliseconds go out together. */
const JOIN_MS = 4;
const RETRY_MS = 500;
/** Each step of closing waits so long for a server that gives no answer. */
const CLOSE_MS = 1_000;
/** PostgreSQL refuses a payload of 8,000 bytes or more. */
const MAX_PAYLOAD_CHARS = 7_000;
/** Beyond it, rings of a database that is away are dropped: whoever reconnects reads everything again. */
const MAX_WAITING = 20_000;

const giveUp = () => undefined;

const topics: readonly Topic[] = [
  'events',
  'lanes',
  'cancel',
  'keys',
  'agents',
  'budgets',
  'egress',
  'nodes',
];
/**
 * Rung even to replicas that are not counted yet: a revoked key must stop, a changed agent show, a budget and an egress policy hold, at once
 * everywhere; and who is there anew must be known.
 */
const always: ReadonlySet<Topic> = new Set(['keys', 'agents', 'budgets', 'egress', 'nodes']);

/**
 * A doorbell over LISTEN and NOTIFY. A payload is `<replica> <topic> <id> <id> …`; what a replica hears of itself is
 * dropped. Resolves once it listens.
 */
export async function openDoorbell(db: Database, log: Log): Promise<Doorbell> {
  const sql = db.outside(() => db.sql);
  const self = newId();
  const handlers = new Map<Topic, ((ids: string[]) => void)[]>(topics.map((topic) => [topic, []]));
  const reconnected: (() => void)[] = [];
  const waiting = new Map<Topic, Set<string>>(topics.map((topic) => [topic, new Set()]));
  let peers = 0;
  let timer: NodeJS.Timeout | null = null;
  let sending: Promise<void> = Promise.resolve();
  let isFirstListen = true;
  let isClosed = false;

  function hear(payload: string): void {
    const [from, topic, ...ids] = payload.split(' ');
    if (from === self) return;
    // Somebody else lives, also when the next count of the nodes is still to come.
    peers = Math.max(peers, 1);
    for (const handler of handlers.get(topic as Topic) ?? []) handler(ids);
  }

  function onListen(): void {
    if (!isFirstListen) for (const handler of reconnected) handler();
    isFirstListen = false;
  }

  function takeMessages(): string[] {
    const messages: string[] = [];
    for (const [topic, ids] of waiting) {
      let message = '';
      for (const id of ids) {
        if (message.length + id.length >= MAX_PAYLOAD_CHARS) {
          messages.push(message);
          message = '';
        }
        message += message === '' ? `${self} ${topic} ${id}` : ` ${id}`;
      }
      if (message !== '') messages.push(message);
      ids.clear();
    }
    return messages;
  }

  async function send(): Promise<void> {
    const messages = takeMessages();
    if (messages.length === 0) return;
    try {
      await db.outside(() => sql`select pg_notify(${CHANNEL}, m) from unnest(${messages}::text[]) m`);
    } catch (error) {
      if (isClosed) return;
      log.warn('The doorbell could not be rung; it is tried again.', { error: String(error) });
      for (const message of messages) {
        const [, topic, ...ids] = message.split(' ');
        const set = waiting.get(topic as Topic)!;
        for (const id of ids) if (set.size < MAX_WAITING) set.add(id);
      }
      schedule(RETRY_MS);
    }
  }

  function schedule(delayMs: number): void {
    timer ??= setTimeout(() => {
      timer = null;
      sending = sending.then(send);
    }, delayMs);
  }

  const listening = await sql.listen(CHANNEL, hear, onListen);

  return {
    ring(topic, id) {
      if (isClosed || (peers === 0 && !always.has(topic))) return;
      waiting.get(topic)!.add(id);
      schedule(JOIN_MS);
    },
    on: (topic, handler) => void handlers.get(topic)!.push(handler),
    onReconnect: (handler) => void reconnected.push(handler),
    setPeers: (others) => void (peers = others),
    async close() {
      await within<unknown>(CLOSE_MS, sending.then(send), giveUp);
      isClosed = true;
      // What failed just now has asked for another try.
      if (timer) clearTimeout(timer);
      timer = null;
      await within<unknown>(
        CLOSE_MS,
        listening.unlisten().catch(() => undefined),
        giveUp,
      );
      // After a lost connection the driver listens by a listener of its own, which `unlisten` does not know: it would
      // listen again when the handle is closed, for ever.
      delete (sql.listen as unknown as { channels?: Record<string, unknown> }).channels?.[CHANNEL];
    },
  };
}
