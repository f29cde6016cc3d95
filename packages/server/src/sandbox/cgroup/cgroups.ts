import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { listFolders, tryMakeFolder, tryRemoveFolder } from './files.ts';
import { Group } from './group.ts';
import { ownFolder, readMounts, type CgroupMount } from './mounts.ts';
import {
  findHierarchies,
  limitControllers,
  type Controller,
  type FindOptions,
  type Hierarchy,
} from './hierarchy.ts';

/** What of cgroups this host lets us use. */
export interface Cgroups {
  hierarchies: Hierarchy[];
  /** Limits that the kernel enforces over a whole sandbox. */
  enforced: Controller[];
  /** Whether sandboxes can be frozen. */
  canFreeze: boolean;
  /** The folder in which this process is itself; null where that is not known. */
  own: string | null;
  group(id: string): Group;
  /** Names of groups that exist, whoever made them. */
  list(): string[];
  /** Removes the folders that held the groups, where those are empty. */
  close(): void;
}

/** Finds the hierarchies and proves each by moving a process into it; those that refuse are not used. */
export async function openCgroups(options: FindOptions): Promise<Cgroups> {
  const found = findHierarchies(options);
  for (const { parent } of found) removeLeftProbes(parent);
  const hierarchies = await provenHierarchies(found);
  for (const one of found) if (!hierarchies.includes(one)) tryRemoveFolder(one.parent);
  return {
    hierarchies,
    enforced: limitControllers.filter((name) => hierarchies.some((one) => one.controllers.includes(name))),
    canFreeze: hierarchies.some((one) => one.freezes),
    own: ownFolderOf(options.mounts),
    group: (id) => new Group(hierarchies, id),
    list: () => [...new Set(hierarchies.flatMap((one) => listFolders(one.parent)))],
    close: () => hierarchies.forEach((one) => tryRemoveFolder(one.parent)),
  };
}

/** Asked afterwards: to open them may have moved us. */
function ownFolderOf(mounts: CgroupMount[]): string | null {
  const { selfCgroup } = readMounts();
  const newest = mounts.toSorted((a, b) => b.version - a.version)[0];
  return newest ? ownFolder(newest, selfCgroup) : null;
}

const probeOf = (pid: number): string => `probe-${pid}`;

/** Of processes that were killed while they tried: the folder that holds it could never be removed. */
function removeLeftProbes(parent: string): void {
  for (const name of listFolders(parent)) {
    const pid = Number(/^probe-(\d+)$/.exec(name)?.[1]);
    if (pid > 0 && !existsSync(`/proc/${pid}`)) tryRemoveFolder(join(parent, name));
  }
}

/** Proves the way in and the way out. A folder can be made where processes cannot be moved (the kernel also asks for rights on the common ancestor). */
async function provenHierarchies(found: Hierarchy[]): Promise<Hierarchy[]> {
  if (found.length === 0) return [];
  const probe = spawn('/bin/cat', [], { env: {}, stdio: ['pipe', 'ignore', 'ignore'] });
  const ended = once(probe, 'exit').catch(() => null);
  const proven: Hierarchy[] = [];
  const made: string[] = [];
  try {
    for (const hierarchy of found) {
      const folder = join(hierarchy.parent, probeOf(process.pid));
      if (!tryMakeFolder(folder)) continue;
      made.push(folder);
      const joined = await writeFile(join(folder, 'cgroup.procs'), String(probe.pid)).then(
        () => true,
        () => false,
      );
      if (!joined) continue;
      proven.push(hierarchy);
      const { own } = hierarchy;
      const left = own === null ? null : writeFile(join(own, 'cgroup.procs'), String(probe.pid));
      // What cannot be moved out again is not to be born in it.
      await left?.catch(() => (hierarchy.own = null));
    }
  } finally {
    probe.kill('SIGKILL');
    await ended;
    await Promise.all(made.map((folder) => rmdir(folder).catch(() => null)));
  }
  return proven;
}
