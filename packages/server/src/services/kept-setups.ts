import type { ChannelSetups } from './channels.ts';

/** Known within a second on every replica, like the revocation of a key. */
const keptMs = 1_000;
const maxKept = 20_000;

export interface KeptSetups extends ChannelSetups {
  /** The channel was changed here: the next delivery reads it anew. */
  forget(channelId: string): void;
}

/** Setups without a read and a decryption for each delivery. */
export function keepSetups(setups: ChannelSetups, now: () => number = Date.now): KeptSetups {
  const kept = new Map<string, { atMs: number; found: ReturnType<ChannelSetups['open']> }>();
  return {
    open(channelId) {
      const before = kept.get(channelId);
      if (before && now() - before.atMs < keptMs) return before.found;
      if (kept.size > maxKept) kept.clear();
      const found = setups.open(channelId);
      kept.set(channelId, { atMs: now(), found });
      found.catch(() => kept.delete(channelId));
      return found;
    },
    forget: (channelId) => void kept.delete(channelId),
  };
}
