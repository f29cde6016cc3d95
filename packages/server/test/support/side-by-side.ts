import assert from 'node:assert/strict';
import { readdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { mountedFrom } from '../../src/sandbox/disk/image-mounts.ts';
import type { Volumes } from '../../src/sandbox/volumes.ts';

/** Makes, uses and removes disks in so many rows at once, `each` in a row; none may see what is another's. */
export async function disksSideBySide(
  { volumes, imagesDir, volumesDir }: { volumes: Volumes; imagesDir: string; volumesDir: string },
  rows: number,
  each: number,
): Promise<void> {
  const row = async (at: number): Promise<void> => {
    for (let one = 0; one < each; one += 1) {
      const volumeDir = join(volumesDir, `agent-${at}-${one}`);
      await volumes.prepare(volumeDir, null);
      const mounted = mountedFrom(imagesDir).filter(({ folder }) => folder === volumeDir);
      assert.deepEqual(
        mounted.map(({ image }) => basename(image)),
        [`${basename(volumeDir)}.img`],
      );
      assert.deepEqual(readdirSync(join(volumeDir, 'workspace')), []);
      writeFileSync(join(volumeDir, 'workspace', 'own'), volumeDir);
      await volumes.remove(volumeDir);
    }
  };
  await Promise.all(Array.from({ length: rows }, (_, at) => row(at)));
}
