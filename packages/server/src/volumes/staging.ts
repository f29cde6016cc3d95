import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { lstatSync } from 'node:fs';
import { chown, lstat, mkdir, readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { deed } from '../domain/deeds.ts';
import { guarded, telling } from './walk.ts';

/** Host user and group to whom a sandbox's files belong. */
export interface Owner {
  uid: number;
  gid: number;
}

/** What one operation has to itself. */
export interface Staging {
  volumeDir: string;
  folder: string;
  owner: Owner | null;
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

/** A folder of its own for one operation, that the owner may enter, since `rm` runs as the owner. Done in a deed. */
export async function openStaging(volumeDir: string, owner: Owner | null): Promise<Staging> {
  const staging = stagingOf(volumeDir);
  // Never the volume as well, whose agent may have been deleted just now.
  await telling(mkdir(staging, { mode: 0o711 }).catch(ignoreExisting));
  const folder = join(staging, randomUUID());
  await telling(mkdir(folder, { mode: 0o700 }));
  if (owner) await chown(folder, owner.uid, owner.gid);
  return { volumeDir, folder, owner };
}

/**
 * Removes an operation's folder with all that is in it, as the user whose files they are: whatever was moved there
 * reaches no further than its owner does. `rm` walks by descriptors, and any depth.
 */
export async function closeStaging({ volumeDir, folder, owner }: Staging): Promise<void> {
  const names = await deed(volumeDir, () => namesIn(folder));
  // The volume is gone as a whole where its agent was deleted meanwhile.
  if (names === null) return;
  if (names.length > 0) {
    // The folder's own name is walked to as root, before the user is changed.
    if (!(await run('/bin/rm', ['-rf', '--one-file-system', '--', 'it'], folder, owner))) {
      // Folders that their owner may not enter: the owner may change that. Links are not followed.
      await run('/bin/chmod', ['-R', 'u+rwX', '--', 'it'], folder, owner);
      await run('/bin/rm', ['-rf', '--one-file-system', '--', 'it'], folder, owner);
    }
  }
  await deed(volumeDir, () => rmdir(folder).catch(ignoreMissing));
}

/**
 * Gives the files in a folder that nobody else can reach to their owner, who has its folders already and so can delete
 * them. One by one it would be as much work as all else that unpacks them.
 */
export async function giveAll(folder: string, { uid, gid }: Owner): Promise<void> {
  if (!(await run('/bin/chown', ['-RhP', '--', `${uid}:${gid}`, '.'], folder, null)))
    await fail(folder, `What is in ${folder} could not be given to its owner.`);
}

/** Puts on the disk all that was written to the file system of a folder. */
export async function syncFileSystem(folder: string): Promise<void> {
  if (!(await run('/bin/sync', ['-f', '.'], folder, null)))
    await fail(folder, `What was written to ${folder} could not be put on the disk.`);
}

/** Rejects with ENOENT where the volume is gone as a whole, since its agent was deleted meanwhile. */
async function fail(folder: string, message: string): Promise<never> {
  await lstat(folder);
  throw new Error(message);
}

/** Whatever a service that was killed left behind. */
export async function clearStaging(volumeDir: string): Promise<void> {
  const names = await deed(volumeDir, () => namesIn(stagingOf(volumeDir)).catch(() => null));
  for (const name of names ?? []) {
    const folder = join(stagingOf(volumeDir), name);
    await closeStaging({ volumeDir, folder, owner: ownerOf(volumeDir) }).catch(() => undefined);
  }
}

/** An operation has one thing in its folder, of this name. */
export const itIn = ({ folder }: Staging): string => join(folder, 'it');

/** Null: it is not there. */
const namesIn = (folder: string): Promise<string[] | null> => readdir(folder).catch(ignoreMissing);

function ignoreMissing(error: NodeJS.ErrnoException): null {
  if (error.code === 'ENOENT') return null;
  throw error;
}

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error;
}

/** Whether it ended well. */
function run(file: string, args: string[], cwd: string, owner: Owner | null): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(file, args, { ...owner, cwd, env: { LC_ALL: 'C' }, stdio: 'ignore' });
    child.once('error', () => resolve(false));
    child.once('close', (code) => resolve(code === 0));
  });
}
