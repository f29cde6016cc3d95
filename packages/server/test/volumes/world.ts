import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { VolumePath } from '../../src/domain/ports/volume.ts';
import { createVolumes } from '../../src/volumes/volumes.ts';
import { volumeSwap } from '../../src/sandbox/volume-swap.ts';

export const isRoot = process.getuid?.() === 0;
/** A tenant's host user, as drivers give one to each agent. */
export const tenant = isRoot ? { uid: 200_900, gid: 200_900 } : null;

/** `parent`: a file system in memory where very many files are made. */
export function volumeWorld(parent = '/tmp') {
  const base = mkdtempSync(`${parent}/berth-v-`);
  // The tenant must be able to pass through.
  chmodSync(base, 0o711);
  const volumeDir = join(base, 'volume');
  for (const folder of [volumeDir, join(volumeDir, 'workspace'), join(volumeDir, 'home')]) {
    mkdirSync(folder, { mode: 0o700 });
    if (tenant) chownSync(folder, tenant.uid, tenant.gid);
  }
  return {
    volumes: createVolumes(volumeSwap),
    base,
    volumeDir,
    workspace: join(volumeDir, 'workspace'),
    /** What the tenant does, in the workspace and with its rights. */
    shell: (script: string) =>
      execFileSync('/bin/sh', ['-c', script], {
        cwd: join(volumeDir, 'workspace'),
        ...tenant,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    /** What operations have left beside the volume. */
    litter: () => readdirSync(join(volumeDir, 'staging')),
    end() {
      // Folders that the tenant closed are closed to whoever is not root.
      if (!isRoot) execFileSync('chmod', ['-R', 'u+rwx', base]);
      rmSync(base, { recursive: true, force: true });
    },
  };
}

export type VolumeWorld = ReturnType<typeof volumeWorld>;

export const at = (path: string, tree: VolumePath['tree'] = 'workspace'): VolumePath => ({
  tree,
  names: path
    .split('/')
    .filter(Boolean)
    .map((name) => Buffer.from(name)),
});

export async function* chunks(...parts: (string | Buffer)[]): AsyncGenerator<Buffer> {
  for (const part of parts) yield Buffer.from(part);
}

export async function textOf(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(stream));
}

/** How many descriptors of this process are of something in a folder. */
export function openFds(folder: string): number {
  return readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith(folder);
    } catch {
      return false;
    }
  }).length;
}
