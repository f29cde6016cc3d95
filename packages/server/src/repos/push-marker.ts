import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isCommitId } from './ref-names.ts';
import type { RepoStore } from './repo-store.ts';

/**
 * A note in the repository while a push deploys. When the service dies in between, the branch stands on a commit of
 * which nobody knows whether it was deployed; the next request takes the branch back, so that pushing again deploys.
 */
export interface PushMarker {
  ref: string;
  oldId: string;
  newId: string;
}

const fileName = 'berth-pushing';

export async function setMarker(dir: string, marker: PushMarker): Promise<void> {
  await writeFile(join(dir, fileName), JSON.stringify(marker));
}

export async function clearMarker(dir: string): Promise<void> {
  await rm(join(dir, fileName), { force: true });
}

/** Only to be called while no push to this repository is going on in this process. */
export async function repairInterrupted(store: RepoStore, agentId: string): Promise<void> {
  const dir = store.dir(agentId);
  const text = await readFile(join(dir, fileName), 'utf8').catch(() => null);
  if (text === null) return;
  const marker = parse(text);
  if (marker) await store.moveRef(agentId, marker.ref, marker.oldId, marker.newId);
  await clearMarker(dir);
}

/** Null for a note that was cut off by the crash: then git had not been started yet. */
function parse(text: string): PushMarker | null {
  try {
    const value = JSON.parse(text) as Partial<PushMarker>;
    const { ref, oldId, newId } = value;
    if (typeof ref !== 'string' || !ref.startsWith('refs/heads/')) return null;
    if (typeof oldId !== 'string' || typeof newId !== 'string' || !isCommitId(oldId) || !isCommitId(newId))
      return null;
    return { ref, oldId, newId };
  } catch {
    return null;
  }
}
