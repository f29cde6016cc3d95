import { closeSync, constants, openSync, readSync } from 'node:fs';

const KERNEL_LOG = '/dev/kmsg';
/** Of one record (Documentation/ABI/testing/dev-kmsg of the kernel), which is what one read gives. */
const RECORD_BYTES = 8192;

/**
 * Whether the kernel's log has a kill for want of memory in a cgroup whose path has this name in it. The log outlives the
 * cgroup. False where it may not be read, as in most containers; and the kernel leaves lines out where it has many.
 */
export function logTellsOfOom(groupName: string, path = KERNEL_LOG): boolean {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return false;
  }
  const record = Buffer.alloc(RECORD_BYTES);
  try {
    for (;;) {
      const bytes = readRecord(fd, record);
      if (bytes === 0) return false;
      if (bytes !== null && namesGroup(record.toString('latin1', 0, bytes), groupName)) return true;
    }
  } finally {
    closeSync(fd);
  }
}

/** Zero at the end; null when what came next was overwritten meanwhile. */
function readRecord(fd: number, record: Buffer): number | null {
  try {
    return readSync(fd, record);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPIPE' ? null : 0;
  }
}

/** `oom-kill:constraint=…,task_memcg=/…/libpod-<id>,task=…` (mm/oom_kill.c). */
function namesGroup(text: string, groupName: string): boolean {
  return [...text.matchAll(/oom-kill:.*?\btask_memcg=([^,\n]*)/g)].some(([, path]) =>
    path!.split('/').includes(groupName),
  );
}
