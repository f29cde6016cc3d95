import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { chmod, chown, lstat, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { deed } from '../domain/deeds.ts';
import { logFileIn } from './output-log.ts';
import { started } from './started.ts';
import { volumeSwap } from './volume-swap.ts';

/** Host user and group of a sandbox; null where the service is no root and everything runs as the service itself. */
export type SandboxUser = { uid: number; gid: number } | null;

/**
 * Makes `workspace/` and `home/`, owned by the sandbox's user and closed for all others. Nearly always they are so, and
 * then nothing is written and nobody is waited for.
 */
export async function prepareVolume(volumeDir: string, user: SandboxUser): Promise<void> {
  const folders = [volumeDir, ...volumeSwap.trees.map((tree) => join(volumeDir, tree))];
  if (!existsSync(volumeSwap.nextOf(volumeDir)) && folders.every((folder) => isOwn(folder, user))) return;
  await deed(volumeDir, async () => {
    // A tree that a restore has moved away must not be taken for one that was never there.
    await volumeSwap.finish(volumeDir);
    for (const folder of folders) {
      const made = await mkdir(folder, { recursive: true, mode: 0o700 });
      // A sandbox may take away its own rights on these, and then could never start again.
      if (made === undefined) await chmod(folder, 0o700);
      if (user) await chown(folder, user.uid, user.gid);
    }
  });
}

function isOwn(folder: string, user: SandboxUser): boolean {
  const stat = statSync(folder, { throwIfNoEntry: false });
  if (!stat?.isDirectory() || (stat.mode & 0o7777) !== 0o700) return false;
  return user === null || (stat.uid === user.uid && stat.gid === user.gid);
}

/**
 * Lets the sandbox's user, and nobody else, enter the folder, connect to the sockets that are in it and read its files,
 * except for the log of its output: that of an earlier one, or of one that is waiting in the pool, is there already.
 */
export function prepareRunDir(runDir: string, user: SandboxUser): void {
  mkdirSync(runDir, { recursive: true, mode: 0o700 });
  if (!user) return;
  chownSync(runDir, 0, user.gid);
  chmodSync(runDir, 0o750);
  const logFile = logFileIn(runDir);
  for (const entry of readdirSync(runDir, { withFileTypes: true })) {
    // The folder keeps others out. Connecting to a socket takes the right to write to it.
    const path = join(runDir, entry.name);
    if (entry.isSocket()) chmodSync(path, 0o666);
    else if (path === logFile) chmodSync(path, 0o600);
    else if (entry.isFile()) chmodSync(path, 0o644);
  }
}

/**
 * Deletes a volume as the user who owns it, so that whatever a sandbox left there (links above all) reaches no further
 * than the sandbox itself could. Idempotent.
 */
export async function removeVolume(volumeDir: string): Promise<void> {
  try {
    await removeOnce(volumeDir);
  } catch (error) {
    // Somebody else may have been at it as well, and has removed it under our feet.
    if (await lstat(volumeDir).catch(ignoreMissing)) throw error;
  }
}

async function removeOnce(volumeDir: string): Promise<void> {
  const stat = await lstat(volumeDir).catch(ignoreMissing);
  if (!stat) return;
  if (!stat.isDirectory()) throw new Error(`${volumeDir} is not a folder, so it is no volume.`);
  const isRoot = process.getuid?.() === 0;
  const user = isRoot ? { uid: stat.uid, gid: stat.gid } : null;
  const folders = [...volumeSwap.trees, 'next'];
  const first = await run('/bin/rm', ['-rf', '--one-file-system', '--', ...folders], volumeDir, user);
  if (first.code !== 0) {
    // Folders that their owner may not enter: the owner may change that. Links are not followed.
    await run('/bin/chmod', ['-R', 'u+rwX', '--', ...folders], volumeDir, user);
    const second = await run('/bin/rm', ['-rf', '--one-file-system', '--', ...folders], volumeDir, user);
    if (second.code !== 0)
      throw new Error(`The volume ${volumeDir} cannot be removed: ${second.errors.slice(0, 500)}`);
  }
  // What is left was made by us; the sandbox could not reach it.
  await deed(volumeDir, () => rm(volumeDir, { recursive: true, force: true }));
}

/** Removes what uploads and restores had put aside and never placed. `next` is no such thing: its swap is finished. */
export async function clearStaged(volumeDir: string): Promise<void> {
  await deed(volumeDir, () => rm(join(volumeDir, 'staging'), { recursive: true, force: true }));
}

/** The folder is entered before the user is changed, who may not be able to walk there. */
async function run(
  file: string,
  args: string[],
  cwd: string,
  user: SandboxUser,
): Promise<{ code: number | null; errors: string }> {
  const child = started(
    spawn(file, args, { ...user, cwd, env: { LC_ALL: 'C' }, stdio: ['ignore', 'ignore', 'pipe'] }),
  );
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => {
    if (errors.length < 4096) errors += chunk.toString();
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, errors };
}

function ignoreMissing(error: NodeJS.ErrnoException): null {
  if (error.code === 'ENOENT') return null;
  throw error;
}
