import { existsSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { readPids, readText, tryMakeFolder, tryWrite } from './files.ts';
import { ownFolder, readMounts, type CgroupMount } from './mounts.ts';

/** The controllers that limits are made of. */
export type Controller = 'memory' | 'cpu' | 'pids';
export const limitControllers: readonly Controller[] = ['memory', 'cpu', 'pids'];

/** A hierarchy that sandboxes join, with the folder that holds a folder for each of them. */
export interface Hierarchy {
  version: 1 | 2;
  parent: string;
  /** Those of this hierarchy that limit our sandboxes; empty where it only counts and kills. */
  controllers: Controller[];
  /** Whether a group of it can be frozen: version 2 from Linux 5.2 on, or the freezer controller of version 1. */
  freezes: boolean;
  /** The folder in which this process is itself, to which others can be moved; null where there is none. */
  own: string | null;
}

/** The part of the machine's memory and process numbers that all sandboxes together may take; the service keeps the rest. */
const SHARE = 0.9;
/** Where the service's own processes go when version 2 forbids processes beside groups with controllers. */
const LEAF = 'berth-service';

export interface FindOptions {
  mounts: CgroupMount[];
  selfCgroup: string;
  /** Name of the folder that holds the sandboxes' folders. */
  name: string;
  isRoot: boolean;
}

/**
 * The hierarchies that can be written, version 2 first. As root our folder lies at the top of the mount, so that a
 * later service process finds it wherever it was started; otherwise in the folder that was delegated to the service.
 */
export function findHierarchies(options: FindOptions): Hierarchy[] {
  const found: Hierarchy[] = [];
  const missing = new Set<Controller>(limitControllers);
  for (const mount of options.mounts.toSorted((a, b) => b.version - a.version)) {
    // Version 2 counts CPU time even without controllers, so version 1 is then joined only for limits.
    const isCounted = found.some((one) => one.version === 2);
    const hierarchy =
      mount.version === 2 ? openVersion2(mount, options) : openVersion1(mount, options, missing, isCounted);
    if (!hierarchy) continue;
    for (const controller of hierarchy.controllers) missing.delete(controller);
    found.push(hierarchy);
  }
  return found;
}

function baseOf(mount: CgroupMount, options: FindOptions): string | null {
  if (options.isRoot) return mount.mountPoint;
  const own = ownFolder(mount, options.selfCgroup);
  return own?.endsWith(`/${LEAF}`) ? own.slice(0, -LEAF.length - 1) : own;
}

/** Read anew: to open a hierarchy may have moved us. */
const ownNow = (mount: CgroupMount): string | null => ownFolder(mount, readMounts().selfCgroup);

function openVersion1(
  mount: CgroupMount,
  options: FindOptions,
  missing: Set<Controller>,
  isCounted: boolean,
): Hierarchy | null {
  const controllers = limitControllers.filter(
    (name) => missing.has(name) && mount.controllers.includes(name),
  );
  // Version 2 comes first and freezes by itself.
  const freezes = !isCounted && mount.controllers.includes('freezer');
  const useful = controllers.length > 0 || freezes || (!isCounted && mount.controllers.includes('cpuacct'));
  const base = useful ? baseOf(mount, options) : null;
  if (base === null) return null;
  const parent = join(base, options.name);
  if (!tryMakeFolder(parent)) return null;
  const hierarchy: Hierarchy = { version: 1, parent, controllers, freezes, own: ownNow(mount) };
  limitAll(hierarchy);
  return hierarchy;
}

function openVersion2(mount: CgroupMount, options: FindOptions): Hierarchy | null {
  const base = baseOf(mount, options);
  if (base === null) return null;
  const parent = join(base, options.name);
  if (!tryMakeFolder(parent)) return null;
  const available = words(readText(join(base, 'cgroup.controllers')));
  const wanted = limitControllers.filter((name) => available.includes(name));
  enable(base, wanted);
  enable(parent, wanted);
  const enabled = words(readText(join(parent, 'cgroup.subtree_control')));
  const controllers = wanted.filter((name) => enabled.includes(name));
  const freezes = existsSync(join(parent, 'cgroup.freeze'));
  const hierarchy: Hierarchy = { version: 2, parent, controllers, freezes, own: ownNow(mount) };
  limitAll(hierarchy);
  return hierarchy;
}

/**
 * Makes the folder of a hierarchy again that is not there any more: another process of this installation has ended, and
 * took it away while it was empty. Without this version 2 would give the sandboxes in it no controllers.
 */
export function makeAgain(hierarchy: Hierarchy): void {
  const { version, parent, controllers } = hierarchy;
  if (existsSync(parent) || !tryMakeFolder(parent)) return;
  if (version === 2) enable(parent, controllers);
  limitAll(hierarchy);
}

/** All sandboxes together weigh half of what the service and its database do when the CPUs are short. */
function limitAll({ version, parent, controllers }: Hierarchy): void {
  const files: Record<Controller, [string, string][]> =
    version === 2
      ? {
          memory: [['memory.max', String(sharedMemoryBytes())]],
          cpu: [['cpu.weight', '50']],
          pids: [['pids.max', String(sharedPids())]],
        }
      : {
          memory: [
            ['memory.use_hierarchy', '1'],
            ['memory.limit_in_bytes', String(sharedMemoryBytes())],
          ],
          cpu: [['cpu.shares', '512']],
          pids: [['pids.max', String(sharedPids())]],
        };
  for (const name of controllers)
    for (const [file, value] of files[name]) tryWrite(join(parent, file), value);
}

/** Hands controllers down to a folder's children. A folder with processes refuses that, so those move to a leaf first. */
function enable(folder: string, controllers: Controller[]): void {
  const enabled = words(readText(join(folder, 'cgroup.subtree_control')));
  const missing = controllers.filter((name) => !enabled.includes(name));
  if (missing.length === 0) return;
  const request = missing.map((name) => `+${name}`).join(' ');
  const control = join(folder, 'cgroup.subtree_control');
  if (tryWrite(control, request)) return;
  // Only the real root has no type; it may hold processes, so the refusal has another reason there.
  if (readText(join(folder, 'cgroup.type')) === null) return;
  const leaf = join(folder, LEAF);
  if (!tryMakeFolder(leaf)) return;
  for (const pid of readPids(folder)) tryWrite(join(leaf, 'cgroup.procs'), String(pid));
  tryWrite(control, request);
}

/** Of the process numbers that the machine has. */
function sharedPids(): number {
  const max = Number(readText('/proc/sys/kernel/pid_max') ?? 32_768);
  return Math.floor((Number.isFinite(max) && max > 0 ? max : 32_768) * SHARE);
}

function sharedMemoryBytes(): number {
  return Math.floor(totalmem() * SHARE);
}

function words(text: string | null): string[] {
  return (text ?? '').split(/\s+/).filter(Boolean);
}
