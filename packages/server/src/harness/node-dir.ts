import { chmod, copyFile, link, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/**
 * The directory that holds `bin/node` of `nodePath`, for a bind into sandboxes. As root these run under other users, who
 * must reach the file: where they cannot (a checkout in /root, say), a copy in `targetDir` takes its place.
 */
export async function reachableNodeDir(
  nodePath: string,
  targetDir: string,
  isRoot = process.getuid?.() === 0,
): Promise<string> {
  if (!isRoot || (await othersReach(nodePath))) return dirname(dirname(nodePath));
  const { size, mtimeMs } = await stat(nodePath);
  const nodeDir = join(targetDir, `node-${size}-${Math.floor(mtimeMs)}`);
  const copied = await stat(join(nodeDir, 'bin', 'node')).catch(() => null);
  if (copied?.size === size) return nodeDir;
  // An earlier version's copy goes away: a sandbox that runs has the file open, and no other will ask for it.
  for (const name of await readdir(targetDir)) {
    if (name.startsWith('node-')) await rm(join(targetDir, name), { recursive: true, force: true });
  }
  // Renamed when complete, so that a copy that was cut off is never taken for a whole one.
  const partial = join(targetDir, `.${basename(nodeDir)}.${process.pid}`);
  await mkdir(join(partial, 'bin'), { recursive: true });
  await placeFile(nodePath, join(partial, 'bin', 'node'));
  // The umask of the service must not close them for the sandboxes' users.
  for (const folder of [partial, join(partial, 'bin')]) await chmod(folder, 0o755);
  await rename(partial, nodeDir);
  return nodeDir;
}

/** A hard link costs neither time nor space; it shares the mode, and needs one file system. */
async function placeFile(from: string, to: string): Promise<void> {
  const isOpen = ((await stat(from)).mode & 0o005) === 0o005;
  const isLinked =
    isOpen &&
    (await link(from, to).then(
      () => true,
      () => false,
    ));
  if (isLinked) return;
  await copyFile(from, to);
  await chmod(to, 0o755);
}

/** Whether any user may run the file: it and every folder above let others in. */
async function othersReach(path: string): Promise<boolean> {
  if (((await stat(path)).mode & 0o005) !== 0o005) return false;
  for (let at = dirname(path); ; at = dirname(at)) {
    if (((await stat(at)).mode & 0o001) === 0) return false;
    if (dirname(at) === at) return true;
  }
}
