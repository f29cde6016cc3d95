import { addTo } from './counts.ts';
import { limits } from './limits.ts';

/** Whose a run is. */
export interface Owner {
  orgId: string;
  agentId: string;
}

/** Of so many places, those that one agent and one organisation have at most; with two places or more, one is left for another. */
export function sharesOf(places: number): { agent: number; org: number } {
  const { ofAgent, ofOrg } = limits.runPlaceTenths;
  const share = (tenths: number) => Math.max(1, Math.floor((places * tenths) / 10));
  return { agent: share(ofAgent), org: share(ofOrg) };
}

/** The places of a node for runs, and who has them (docs/decisions/0415-places-in-turns.md). */
export class RunPlaces {
  readonly #max: number;
  readonly #shares: { agent: number; org: number };
  readonly #ofAgent = new Map<string, number>();
  readonly #ofOrg = new Map<string, number>();
  #taken = 0;

  constructor(max: number) {
    this.#max = max;
    this.#shares = sharesOf(max);
  }

  get free(): number {
    return this.#max - this.#taken;
  }

  /** A run that goes on from an earlier process has its place, whether there is room or not. */
  take({ orgId, agentId }: Owner): void {
    this.#taken += 1;
    addTo(this.#ofAgent, agentId, 1);
    addTo(this.#ofOrg, orgId, 1);
  }

  /** True: somebody may have waited for just this place. */
  leave(owner: Owner): boolean {
    const wasFull = !this.hasRoom(owner, 1);
    this.#taken -= 1;
    addTo(this.#ofAgent, owner.agentId, -1);
    addTo(this.#ofOrg, owner.orgId, -1);
    return wasFull;
  }

  hasRoom({ orgId, agentId }: Owner, count: number): boolean {
    return (
      count <= this.free &&
      count <= this.#shares.agent - (this.#ofAgent.get(agentId) ?? 0) &&
      count <= this.#shares.org - (this.#ofOrg.get(orgId) ?? 0)
    );
  }

  /** Whether so many may begin, whose ever they are. */
  hasRoomForAny(count: number): boolean {
    if (this.#taken + count <= this.#shares.agent) return true;
    const fits = (counts: Map<string, number>, share: number) =>
      count <= share && [...counts.values()].every((taken) => taken + count <= share);
    return (
      count <= this.free && fits(this.#ofAgent, this.#shares.agent) && fits(this.#ofOrg, this.#shares.org)
    );
  }

  /** Those that have all that they get. */
  get full(): { agentIds: string[]; orgIds: string[] } {
    const full = (counts: Map<string, number>, share: number) =>
      [...counts].filter(([, taken]) => taken >= share).map(([id]) => id);
    return { agentIds: full(this.#ofAgent, this.#shares.agent), orgIds: full(this.#ofOrg, this.#shares.org) };
  }

  /**
   * Which of those that wait, the oldest first, begin now, `max` at most. Each place goes to the organisation that has the
   * fewest, of it to the agent that has the fewest, of it to the oldest. Nobody's share is passed.
   */
  inTurns<W extends Owner>(waiting: readonly W[], max: number): W[] {
    const queues = new Map<string, W[]>();
    for (const one of waiting) {
      const queue = queues.get(one.agentId);
      if (queue) queue.push(one);
      else queues.set(one.agentId, [one]);
    }
    // Counted on a copy: a place is taken when its run begins.
    const then = this.#copy();
    const picked: W[] = [];
    while (picked.length < max) {
      let next: W[] | null = null;
      // A queue that began to wait earlier comes earlier, and so wins when both have as many.
      for (const queue of queues.values()) {
        if (!then.hasRoom(queue[0]!, 1)) continue;
        if (!next || then.#hasFewer(queue[0]!, next[0]!)) next = queue;
      }
      if (!next) break;
      const one = next.shift()!;
      if (next.length === 0) queues.delete(one.agentId);
      then.take(one);
      picked.push(one);
    }
    return picked;
  }

  #hasFewer(one: Owner, other: Owner): boolean {
    const byOrg = (this.#ofOrg.get(one.orgId) ?? 0) - (this.#ofOrg.get(other.orgId) ?? 0);
    if (byOrg !== 0) return byOrg < 0;
    return (this.#ofAgent.get(one.agentId) ?? 0) < (this.#ofAgent.get(other.agentId) ?? 0);
  }

  #copy(): RunPlaces {
    const copy = new RunPlaces(this.#max);
    copy.#taken = this.#taken;
    for (const [id, taken] of this.#ofAgent) copy.#ofAgent.set(id, taken);
    for (const [id, taken] of this.#ofOrg) copy.#ofOrg.set(id, taken);
    return copy;
  }
}
