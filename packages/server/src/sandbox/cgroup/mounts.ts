import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** A mounted cgroup file system. `controllers` of version 2 are read later, from the folder that is used. */
export interface CgroupMount {
  version: 1 | 2;
  mountPoint: string;
  /** The folder of the hierarchy that is seen at the mount point; not `/` inside many containers. */
  root: string;
  controllers: string[];
}

/** Reads `/proc/self/mountinfo` (proc_pid_mountinfo(5)); octal escapes are undone. */
export function parseMounts(mountinfo: string): CgroupMount[] {
  return mountinfo.split('\n').flatMap((line) => {
    const fields = line.split(' ');
    const dash = fields.indexOf('-');
    const type = fields[dash + 1];
    if (dash < 0 || (type !== 'cgroup' && type !== 'cgroup2')) return [];
    const controllers = type === 'cgroup' ? (fields[dash + 3] ?? '').split(',') : [];
    return [
      {
        version: type === 'cgroup' ? (1 as const) : (2 as const),
        root: unescape(fields[3] ?? '/'),
        mountPoint: unescape(fields[4] ?? '/'),
        controllers,
      },
    ];
  });
}

/**
 * The folder of the mount that this process runs in, by `/proc/self/cgroup` (cgroups(7)); null when it lies outside of
 * what is mounted.
 */
export function ownFolder(mount: CgroupMount, selfCgroup: string): string | null {
  for (const line of selfCgroup.split('\n')) {
    const [, names, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (names === undefined || path === undefined) continue;
    const matches =
      mount.version === 2 ? names === '' : names.split(',').some((n) => mount.controllers.includes(n));
    if (!matches) continue;
    const inside = relative(mount.root, path);
    return inside.startsWith('..') ? null : join(mount.mountPoint, inside);
  }
  return null;
}

export function readMounts(): { mounts: CgroupMount[]; selfCgroup: string } {
  try {
    return {
      mounts: parseMounts(readFileSync('/proc/self/mountinfo', 'utf8')),
      selfCgroup: readFileSync('/proc/self/cgroup', 'utf8'),
    };
  } catch {
    return { mounts: [], selfCgroup: '' };
  }
}

function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
