import { readdirSync, readFileSync } from 'node:fs';

/** A process as /proc shows it (proc(5), "stat"). */
export interface Process {
  pid: number;
  parent: number;
  name: string;
  /** Of itself and of its children that have ended and were waited for. */
  cpuMs: number;
  /** The part of those children in it. */
  childrenCpuMs: number;
  /** Ticks of the kernel since its own start: with the pid it is this process and no later one. */
  startedAt: number;
}

/** The kernel's USER_HZ, which is 100 on every Linux that Node runs on. */
const MS_PER_TICK = 10;

export function readProcess(pid: number): Process | null {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return null;
  }
  // The name stands in brackets and may hold anything, brackets and spaces among it.
  const end = text.lastIndexOf(')');
  const fields = text.slice(end + 2).split(' ');
  const msOf = (...at: number[]) => at.reduce((sum, index) => sum + Number(fields[index]), 0) * MS_PER_TICK;
  return {
    pid,
    parent: Number(fields[1]),
    name: text.slice(text.indexOf('(') + 1, end),
    cpuMs: msOf(11, 12, 13, 14),
    childrenCpuMs: msOf(13, 14),
    startedAt: Number(fields[19]),
  };
}

/** All that the machine has now. */
export function allProcesses(): Process[] {
  return readdirSync('/proc').flatMap((entry) => {
    const found = /^\d+$/.test(entry) ? readProcess(Number(entry)) : null;
    return found ? [found] : [];
  });
}

/** The process and everything below it. */
export function processTree(rootPid: number): Process[] {
  const all = allProcesses();
  const children = Map.groupBy(all, ({ parent }) => parent);
  const root = all.find(({ pid }) => pid === rootPid);
  const tree: Process[] = root ? [root] : [];
  for (let at = 0; at < tree.length; at += 1) tree.push(...(children.get(tree[at]!.pid) ?? []));
  return tree;
}

export type Part = 'service' | 'postgres' | 'sandbox';

/** The service's process tree by part: PostgreSQL and the sandboxes are the trees below its children of those names. */
export function servicePids(servicePid: number): Record<Part, number[]> {
  const parts: Record<Part, number[]> = { service: [], postgres: [], sandbox: [] };
  const partOf = new Map<number, Part>();
  const tree = processTree(servicePid);
  for (const found of tree) {
    const above = partOf.get(found.parent) ?? 'service';
    let part = above;
    if (above === 'service' && found.pid !== servicePid) part = partOfChild(found, tree);
    partOf.set(found.pid, part);
    parts[part].push(found.pid);
  }
  return parts;
}

/** What runs PostgreSQL is a shell, so the trees below a child are looked at, not its own name alone. */
function partOfChild(child: Process, tree: Process[]): Part {
  const below = tree.filter((found) => found.pid === child.pid || found.parent === child.pid);
  if (below.some((found) => found.name.startsWith('postgres'))) return 'postgres';
  return below.some((found) => found.name === 'bwrap') ? 'sandbox' : 'service';
}

/** CPU of each part so far. */
export function serviceCpuMs(servicePid: number): Record<Part, number> {
  const pids = servicePids(servicePid);
  const cpuOf = (part: Part) => pids[part].reduce((sum, pid) => sum + (readProcess(pid)?.cpuMs ?? 0), 0);
  return { service: cpuOf('service'), postgres: cpuOf('postgres'), sandbox: cpuOf('sandbox') };
}
