/** Does works one after the other, as they came; at once when none is under way. One that fails holds up nothing. */
export class InOrder {
  private last: Promise<void> | null = null;
  private readonly onBusy: (isBusy: boolean) => void;

  /** `onBusy` is told when a work does not end at once, and when there is none any more. */
  constructor(onBusy: (isBusy: boolean) => void) {
    this.onBusy = onBusy;
  }

  get isBusy(): boolean {
    return this.last !== null;
  }

  add(work: () => void | Promise<void>): void {
    const before = this.last;
    const made = before === null ? work() : before.then(work, work);
    if (!(made instanceof Promise)) return;
    const mine = made.finally(() => {
      if (this.last !== mine) return;
      this.last = null;
      this.onBusy(false);
    });
    this.last = mine;
    if (before === null) this.onBusy(true);
  }
}
