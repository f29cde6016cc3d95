import { basename, dirname } from 'node:path';
import { readFileSync } from 'node:fs';
import { Group } from './group.ts';
import { limitControllers, type Hierarchy } from './hierarchy.ts';
import { ownFolder, readMounts } from './mounts.ts';

/**
 * The cgroup that somebody else (a container engine) made for a process, to count in it. Null where it cannot be seen
 * from here, or is not a group of its own.
 */
export function groupOf(pid: number): Group | null {
  let selfCgroup: string;
  try {
    selfCgroup = readFileSync(`/proc/${pid}/cgroup`, 'utf8');
  } catch {
    return null;
  }
  const folders = readMounts().mounts.flatMap((mount) => {
    const path = ownFolder(mount, selfCgroup);
    if (path === null || path === mount.mountPoint) return [];
    const names =
      mount.version === 2 ? controllersOf(path) : mount.controllers.filter((name) => name !== 'freezer');
    const hierarchy: Hierarchy = {
      version: mount.version,
      parent: dirname(path),
      controllers: limitControllers.filter((name) => names.includes(name)),
      freezes: false,
      own: null,
    };
    return [{ hierarchy, path }];
  });
  const [first] = folders;
  if (!first || !folders.some(({ hierarchy }) => hierarchy.controllers.includes('memory'))) return null;
  return new Group(
    folders.map(({ hierarchy }) => hierarchy),
    basename(first.path),
    folders.map(({ path }) => path),
  );
}

function controllersOf(path: string): string[] {
  try {
    return readFileSync(`${path}/cgroup.controllers`, 'utf8').trim().split(/\s+/);
  } catch {
    return [];
  }
}
