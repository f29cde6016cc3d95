import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chownSync, existsSync, lstatSync, mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { guarded, told } from './walk.ts';

/** Host user and group to whom a sandbox's files belong. */
export interface Owner {
  uid: number;
  gid: number;
}

/**
 * A folder beside the sandbox's own, on the same file system, that no sandbox can see: what is written is made whole
 * here and then moved to its place, and what is deleted is moved here first. So nothing half done is ever seen, and
 * nobody gets in between.
 */
const stagingOf = (volumeDir: string): string => join(volumeDir, 'staging');

/** Null where the service is not root: then everything is the service's own. */
export function ownerOf(volumeDir: string): Owner | null {
  if (process.getuid?.() !== 0) return null;
  const { uid, gid } = guarded(() => lstatSync(join(volumeDir, 'workspace')));
  return { uid, gid };
}

/** A folder of its own for one operation, that the owner may enter, since `rm` runs as the owner. */
export function openStaging(volumeDir: string, owner: Owner | null): string {
  const staging = stagingOf(volumeDir);
  try {
    // Never the volume as well, whose agent may have been deleted just now.
    mkdirSync(staging, { mode: 0o711 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw told(error);
  }
  const folder = join(staging, randomUUID());
  guarded(() => mkdirSync(folder, { mode: 0o700 }));
  if (owner) chownSync(folder, owner.uid, owner.gid);
  return folder;
}

/**
 * Removes an operation's folder with all that is in it, as the user whose files they are: whatever was moved there
 * reaches no further than its owner does. `rm` walks by descriptors, and any depth.
 */
export async function closeStaging(folder: string, owner: Owner | null): Promise<void> {
  // The volume is gone as a whole where its agent was deleted meanwhile.
  if (!existsSync(folder)) return;
  if (readdirSync(folder).length > 0) {
    // The folder's own name is walked to as root, before the user is changed.
    if (!(await run('/bin/rm', ['-rf', '--one-file-system', '--', 'it'], folder, owner))) {
      // Folders that their owner may not enter: the owner may change that. Links are not followed.
      await run('/bin/chmod', ['-R', 'u+rwX', '--', 'it'], folder, owner);
      await run('/bin/rm', ['-rf', '--one-file-system', '--', 'it'], folder, owner);
    }
  }
  rmdirSync(folder);
}

/** Puts on the disk all that was written to the file system of a folder. */
export async function syncFileSystem(folder: string): Promise<void> {
  if (!(await run('/bin/sync', ['-f', '.'], folder, null)))
    throw new Error(`What was written to ${folder} could not be put on the disk.`);
}

/** Whatever a service that was killed left behind. */
export async function clearStaging(volumeDir: string): Promise<void> {
  for (const name of names(stagingOf(volumeDir))) {
    const folder = join(stagingOf(volumeDir), name);
    await closeStaging(folder, ownerOf(volumeDir)).catch(() => undefined);
  }
}

/** An operation has one thing in its folder, of this name. */
export const itIn = (folder: string): string => join(folder, 'it');

function names(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Whether it ended well. */
function run(file: string, args: string[], cwd: string, owner: Owner | null): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(file, args, { ...owner, cwd, env: { LC_ALL: 'C' }, stdio: 'ignore' });
    child.once('error', () => resolve(false));
    child.once('close', (code) => resolve(code === 0));
  });
}
