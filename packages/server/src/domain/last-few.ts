/** Names that were added last, so many at most; the oldest are forgotten. */
export class LastFew {
  readonly #names = new Set<string>();
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  add(name: string): void {
    this.#names.delete(name);
    this.#names.add(name);
    if (this.#names.size <= this.#max) return;
    for (const oldest of this.#names) {
      this.#names.delete(oldest);
      return;
    }
  }

  /** Whether it was there; it is not any more. */
  take(name: string): boolean {
    return this.#names.delete(name);
  }
}
