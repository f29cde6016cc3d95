import { addTo } from '../domain/counts.ts';

interface Most {
  ofAgent: number;
  ofOrg?: number;
  ofAll: number;
}

/**
 * Places that are taken for a while: so many of one agent, of one organisation where that is told, and of all agents together.
 */
export class Places {
  readonly #most: Most;
  /** What takes them and is done with it: `terminals are open`. */
  readonly #what: string;
  /** By agents and by organisations, whose ids are never the same. */
  readonly #taken = new Map<string, number>();
  #all = 0;

  constructor(what: string, most: Most) {
    this.#what = what;
    this.#most = most;
  }

  get isFull(): boolean {
    return this.#all >= this.#most.ofAll;
  }

  isFullOf(agentId: string): boolean {
    return (this.#taken.get(agentId) ?? 0) >= this.#most.ofAgent;
  }

  /** Tells which limit an agent is at, or its organisation; null when there is a place for it. */
  refusal(agentId: string, orgId?: string): string | null {
    const { ofAgent, ofOrg = Infinity, ofAll } = this.#most;
    if (this.isFullOf(agentId)) return `At most ${ofAgent} ${this.#what} at once for an agent.`;
    if (orgId !== undefined && (this.#taken.get(orgId) ?? 0) >= ofOrg)
      return `At most ${ofOrg} ${this.#what} at once for all agents of an organisation, and all are taken; try again later.`;
    return this.isFull
      ? `At most ${ofAll} ${this.#what} at once for all agents together, and all are taken; try again later.`
      : null;
  }

  /** Takes one, also where there is none: whoever takes it asks first. Gives it back when called, once or more often. */
  take(agentId: string, orgId?: string): () => void {
    const takers = orgId === undefined ? [agentId] : [agentId, orgId];
    for (const id of takers) addTo(this.#taken, id, 1);
    this.#all += 1;
    let isIn = true;
    return () => {
      if (!isIn) return;
      isIn = false;
      this.#all -= 1;
      for (const id of takers) addTo(this.#taken, id, -1);
    };
  }
}
