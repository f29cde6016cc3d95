import { readdirSync, readFileSync } from 'node:fs';

const read = (file: string): string => {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    // It has ended meanwhile.
    return '';
  }
};

/** The processes that a group has now. */
function processesOf(group: number): string[] {
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    // The name of the program, in brackets, may hold spaces.
    const fields = read(`/proc/${pid}/stat`).split(') ').at(-1)?.split(' ') ?? [];
    return Number(fields[2]) === group;
  });
}

/**
 * A clock of what the processes of a group have used: milliseconds on a processor of all their threads (proc(5): schedstat,
 * in nanoseconds). Unlike the time on the wall it does not grow with what else the machine does.
 */
export function cpuClock(group: number): () => number {
  const tasks = processesOf(group).map((pid) => `/proc/${pid}/task`);
  const used = (task: string) =>
    readdirSync(task).reduce((sum, id) => sum + Number(read(`${task}/${id}/schedstat`).split(' ')[0]), 0);
  return () => tasks.reduce((sum, task) => sum + used(task), 0) / 1e6;
}
