/**
 * Tells the kills for want of memory that end a program from those of long ago, which ended a tool of it. What ends a
 * program comes some time before its end is told, and a large one takes its time to die, the more so within its limit of
 * the CPU: as long as anything is still dying no kill becomes one of long ago, and afterwards not before the second look.
 */
export class OomKills {
  private readonly count: () => number;
  private readonly isAnyDying: () => boolean;
  private old: number;
  private seen: number;

  /** `count` is the kernel's; `isAnyDying` is asked of everything inside when that has grown. */
  constructor(count: () => number, isAnyDying: () => boolean) {
    this.count = count;
    this.isAnyDying = isAnyDying;
    this.old = count();
    this.seen = this.old;
  }

  /** Called about once a second. */
  look(): void {
    const now = this.count();
    if (now > this.old && this.isAnyDying()) return;
    this.old = this.seen;
    this.seen = now;
  }

  /** Of a count that was read when the program ended, or that is read now. */
  hasNew(count = this.count()): boolean {
    return Math.max(count, this.seen) > this.old;
  }

  get hasOld(): boolean {
    return this.old > 0;
  }
}
