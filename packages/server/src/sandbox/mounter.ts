import { readFileSync } from 'node:fs';
import { hex, missingHelper, PERL, type Helper } from './helper.ts';

/** Lines that say what is missing; empty when volumes can be mounted into sandboxes that run. */
export function missingForMounting(isRoot: boolean): string[] {
  if (!isRoot) return ['Only root can mount a volume into a sandbox that runs.'];
  const missing = missingHelper(PERL);
  return missing === null ? [] : [missing];
}

/**
 * Whether a sandbox that was let go has its own root: what is mounted too early is not found or lies in the wrong place. The
 * places of the new root are told without a folder before them when it is the root, and the old one lies over it for a moment
 * (proc_pid_mountinfo(5)).
 */
export function hasOwnRoot(initPid: number): boolean {
  const places = readFileSync(`/proc/${initPid}/mountinfo`, 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4]);
  return places.includes('/run/berth') && places.filter((place) => place === '/').length === 1;
}

/** Mounts at one folder what is mounted at another. When it rejects, it may be at either or both. */
export async function moveMount(helper: Helper, from: string, to: string): Promise<void> {
  const said = await helper.ask('move', [hex(from), hex(to)]);
  if (said !== 'ok') throw new Error(`${from} could not be moved to ${to}: ${said}`);
}

export interface MountOrder {
  initPid: number;
  /** Inode of the sandbox's mount namespace. */
  namespace: number;
  volumeDir: string;
  /** Host uid and gid of the volume's owner, and the sandbox's own, as whose the files are to appear. */
  ownerId: number;
  userId: number;
}

/** Rejects when a volume could not be mounted; parts of it may have been then. */
export async function mountVolume(
  helper: Helper,
  { initPid, namespace, volumeDir, ownerId, userId }: MountOrder,
): Promise<void> {
  const said = await helper.ask('mount', [initPid, namespace, ownerId, userId, hex(volumeDir)]);
  if (said !== 'ok') throw new Error(`The volume could not be mounted: ${said}`);
}
