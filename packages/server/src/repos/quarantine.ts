import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

/** Where receive-pack keeps what it receives until refs move to it (`tmp-objdir.c` of git; older ones without `tmp_objdir-`). */
const quarantine = /^(tmp_objdir-)?incoming-/;

/** Removes what pushes left behind whose git was killed. No push may be under way in the repository. */
export async function removeQuarantines(repoDir: string): Promise<void> {
  const objects = join(repoDir, 'objects');
  for (const name of await readdir(objects)) {
    if (quarantine.test(name)) await rm(join(objects, name), { recursive: true, force: true });
  }
}
