/** Something that waits, and how long it will take as far as one knows beforehand: null when nothing waits. */
interface Waiting {
  leftMs(): number | null;
}

interface Share<Group> {
  group: Group;
  /** What it has had, or would have had if it had waited all the while. */
  hadMs: number;
}

/**
 * Groups that are owed equal shares of time: whichever will have had the least when it is done comes next, and of those alike the one that
 * waits longest. Who comes anew is taken for one that had as much as the one whose turn it is: it waits for none of those who had more, and
 * gets nothing for the time in which it asked for nothing.
 */
class Shares<Group extends Waiting> implements Waiting {
  private readonly all = new Map<unknown, Share<Group>>();
  private readonly make: () => Group;
  private turnMs = 0;

  constructor(make: () => Group) {
    this.make = make;
  }

  /** Before something is put into it. */
  ofWaiting(key: unknown): Group {
    const share = this.all.get(key) ?? { group: this.make(), hadMs: 0 };
    this.all.set(key, share);
    if (share.group.leftMs() === null) share.hadMs = Math.max(share.hadMs, this.turnMs);
    return share.group;
  }

  get(key: unknown): Group | undefined {
    return this.all.get(key)?.group;
  }

  leftMs(): number | null {
    return this.find()?.leftMs ?? null;
  }

  /** Whose turn it is. */
  next(): { key: unknown; group: Group } | null {
    const found = this.find();
    if (found === null) return null;
    const { key, share } = found;
    this.turnMs = Math.max(this.turnMs, share.hadMs);
    return { key, group: share.group };
  }

  had(key: unknown, ms: number): void {
    const share = this.all.get(key);
    if (share === undefined) return;
    share.hadMs += ms;
    this.all.delete(key);
    this.all.set(key, share);
  }

  private find(): { key: unknown; share: Share<Group>; leftMs: number } | null {
    let found: { key: unknown; share: Share<Group>; leftMs: number } | null = null;
    for (const [key, share] of this.all) {
      const leftMs = share.group.leftMs();
      if (leftMs === null) {
        if (share.hadMs <= this.turnMs) this.all.delete(key);
      } else if (found === null || share.hadMs + leftMs < found.share.hadMs + found.leftMs) {
        found = { key, share, leftMs };
      }
    }
    return found;
  }
}

/** What one member has, in its order. */
class Line<Piece extends Timed> implements Waiting {
  readonly pieces = new Set<Piece>();

  first(): Piece | null {
    for (const piece of this.pieces) return piece;
    return null;
  }

  leftMs(): number | null {
    return this.first()?.leftMs ?? null;
  }
}

interface Timed {
  /** How long it will still take, as far as one knows. */
  leftMs: number;
}

/** A piece whose turn it is, and whose it is. */
export interface Turn<Piece> {
  group: unknown;
  member: unknown;
  piece: Piece;
}

/** Pieces of work that wait: groups have equal shares of time, in a group its members do, and what a member has comes in order. */
export class Turns<Piece extends Timed> {
  private groups = this.nobody();
  private count = 0;

  get size(): number {
    return this.count;
  }

  add({ group, member, piece }: Turn<Piece>): void {
    this.groups.ofWaiting(group).ofWaiting(member).pieces.add(piece);
    this.count += 1;
  }

  next(): Turn<Piece> | null {
    const group = this.groups.next();
    const member = group?.group.next();
    const piece = member?.group.first();
    return !group || !member || !piece ? null : { group: group.key, member: member.key, piece };
  }

  remove({ group, member, piece }: Turn<Piece>): void {
    if (this.groups.get(group)?.get(member)?.pieces.delete(piece)) this.count -= 1;
  }

  /** Counts the time that a turn took. */
  had({ group, member, piece }: Turn<Piece>, ms: number): void {
    piece.leftMs = Math.max(0, piece.leftMs - ms);
    this.groups.get(group)?.had(member, ms);
    this.groups.had(group, ms);
  }

  /** When nothing waits, nobody is owed anything. */
  forget(): void {
    this.groups = this.nobody();
  }

  private nobody() {
    return new Shares(() => new Shares(() => new Line<Piece>()));
  }
}
