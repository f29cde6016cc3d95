/** Places that are taken for a while: so many of one agent, and so many of all agents together. */
export class Places {
  readonly #most: { ofAgent: number; ofAll: number };
  /** What takes them and is done with it: `terminals are open`. */
  readonly #what: string;
  readonly #taken = new Map<string, number>();
  #all = 0;

  constructor(what: string, most: { ofAgent: number; ofAll: number }) {
    this.#what = what;
    this.#most = most;
  }

  get isFull(): boolean {
    return this.#all >= this.#most.ofAll;
  }

  isFullOf(agentId: string): boolean {
    return (this.#taken.get(agentId) ?? 0) >= this.#most.ofAgent;
  }

  /** Tells which limit an agent is at; null when there is a place for it. */
  refusal(agentId: string): string | null {
    const { ofAgent, ofAll } = this.#most;
    if (this.isFullOf(agentId)) return `At most ${ofAgent} ${this.#what} at once for an agent.`;
    return this.isFull
      ? `At most ${ofAll} ${this.#what} at once for all agents together, and all are taken; try again later.`
      : null;
  }

  /** Takes one, also where there is none: whoever takes it asks first. Gives it back when called, once or more often. */
  take(agentId: string): () => void {
    this.#taken.set(agentId, (this.#taken.get(agentId) ?? 0) + 1);
    this.#all += 1;
    let isIn = true;
    return () => {
      if (!isIn) return;
      isIn = false;
      this.#all -= 1;
      const left = this.#taken.get(agentId)! - 1;
      if (left > 0) this.#taken.set(agentId, left);
      else this.#taken.delete(agentId);
    };
  }
}
