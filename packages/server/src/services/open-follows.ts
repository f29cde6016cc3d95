import type { Log } from '../domain/log.ts';
import { closedAmong } from '../store/closed.ts';
import type { Database } from '../store/database.ts';

/** A revoked key stops working after 1 s at the latest (API contract, section 2), and so do the streams that it opened. */
const CHECK_MS = 900;

export interface OpenFollow {
  /** Absent: opened without a key. */
  keyId?: string;
  /** What it is of: a conversation, or an agent. */
  conversationId?: string;
  agentId?: string;
  end(): void;
}

export interface OpenFollows {
  /** Returns what takes it away again. */
  add(follow: OpenFollow): () => void;
}

/**
 * The streams that are open in this process. A request is checked once, but a stream may last for days: here it ends
 * when its key is revoked or expires, or its conversation or agent is deleted, whichever replica that happened on.
 */
export function createOpenFollows(db: Database, log: Log): OpenFollows {
  const open = new Set<OpenFollow>();
  let timer: NodeJS.Timeout | null = null;

  async function check(): Promise<void> {
    // The last one has ended meanwhile, often since the service stops and the database is about to be closed.
    if (open.size === 0) return;
    const keyIds = new Set<string>();
    const conversationIds = new Set<string>();
    const agentIds = new Set<string>();
    for (const follow of open) {
      if (follow.keyId !== undefined) keyIds.add(follow.keyId);
      if (follow.conversationId !== undefined) conversationIds.add(follow.conversationId);
      if (follow.agentId !== undefined) agentIds.add(follow.agentId);
    }
    const closed = await closedAmong(db, [...keyIds], [...conversationIds], [...agentIds]);
    if (closed.size === 0) return;
    for (const follow of open) {
      const ids = [follow.keyId, follow.conversationId, follow.agentId];
      if (ids.some((id) => id !== undefined && closed.has(id))) follow.end();
    }
  }

  function plan(): void {
    timer = setTimeout(() => {
      check()
        // Nothing can be read while the database is away, so nothing can leak either.
        .catch((error: unknown) => log.warn('Open streams could not be checked.', { error: String(error) }))
        .finally(() => (open.size > 0 ? plan() : (timer = null)));
    }, CHECK_MS).unref();
  }

  return {
    add(follow) {
      open.add(follow);
      // Apart from the caller's transaction, which a timer would keep for as long as it lives.
      if (timer === null) db.outside(plan);
      return () => open.delete(follow);
    },
  };
}
