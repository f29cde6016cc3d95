import type { Process } from './process-tree.ts';

/** The kernel's threads, which work for whoever wrote or sent something, are below this one. */
const KTHREADD = 2;

/**
 * Processor time of all processes but those below `rootPid`, from one look at the machine to the next.
 *
 * What others used is counted, and not what is left of all after one's own: the time of a process that ends in a sandbox
 * is nobody's. The kernel ends the processes of a sandbox with its first one and gives their time to no parent (so it does
 * for children that are ignored), and what is missing among one's own would be taken for others'.
 */
export class Others {
  readonly #rootPid: number;
  #before: Look;

  constructor(rootPid: number, all: readonly Process[]) {
    this.#rootPid = rootPid;
    this.#before = lookAt(rootPid, all, new Map());
  }

  /** Milliseconds since the last look. */
  next(all: readonly Process[]): number {
    const before = this.#before;
    const now = (this.#before = lookAt(this.#rootPid, all, before));
    let usedMs = 0;
    let inheritedMs = 0;
    for (const [key, { is, isOurs }] of now) {
      if (isOurs) continue;
      const was = before.get(key)?.is;
      usedMs += selfMs(is) - (was ? selfMs(was) : 0);
      inheritedMs += is.childrenCpuMs - (was?.childrenCpuMs ?? 0);
    }
    // A parent gets the whole time of a child that it waits for; what was seen of it is counted already.
    return usedMs + Math.max(0, inheritedMs - seenOfEndedMs(before, now));
  }
}

interface Seen {
  is: Process;
  isOurs: boolean;
}

type Look = Map<string, Seen>;

const keyOf = ({ pid, startedAt }: Process): string => `${pid} ${startedAt}`;
const selfMs = ({ cpuMs, childrenCpuMs }: Process): number => cpuMs - childrenCpuMs;

/** One of ours stays ours when its parent has ended and it has come to another one. */
function lookAt(rootPid: number, all: readonly Process[], before: Look): Look {
  const roots = all.filter((found) => found.pid === rootPid || before.get(keyOf(found))?.isOurs);
  const ours = new Set(roots.map(({ pid }) => pid));
  const children = Map.groupBy(all, ({ parent }) => parent);
  // A set is walked to its end, also when it grows meanwhile.
  for (const pid of ours) for (const child of children.get(pid) ?? []) ours.add(child.pid);
  const theirs = all.filter(({ pid, parent }) => pid !== KTHREADD && parent !== KTHREADD);
  return new Map(theirs.map((is) => [keyOf(is), { is, isOurs: ours.has(is.pid) }]));
}

/** Without ours whose parent is ours too and still there: that is who has their time, and not one of the others. */
function seenOfEndedMs(before: Look, now: Look): number {
  const ourPids = new Set([...now.values()].flatMap(({ is, isOurs }) => (isOurs ? [is.pid] : [])));
  let ms = 0;
  for (const [key, { is, isOurs }] of before)
    if (!now.has(key) && !(isOurs && ourPids.has(is.parent))) ms += is.cpuMs;
  return ms;
}
