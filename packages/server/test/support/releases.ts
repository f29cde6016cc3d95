/** Holds turns back until they are released, in their order: what is sent all at once would be over before most faults. */
export class Releases {
  #count = 0;
  #waiting: { turn: number; go: () => void }[] = [];

  /** Resolves when so many are released that the turn of this number, from 0 on, is among them. */
  of(turn: number): Promise<void> {
    if (turn < this.#count) return Promise.resolve();
    return new Promise((go) => this.#waiting.push({ turn, go }));
  }

  upTo(count: number): void {
    this.#count = Math.max(this.#count, count);
    const due = this.#waiting.filter(({ turn }) => turn < this.#count);
    this.#waiting = this.#waiting.filter(({ turn }) => turn >= this.#count);
    for (const { go } of due) go();
  }
}
