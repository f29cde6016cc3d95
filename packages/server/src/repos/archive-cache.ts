import { copyFile, link, mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';

/**
 * The archives written last, inside the repository's own directory, so that they go with it. A commit never changes,
 * so an archive of it is always right. The newest `keep` stay.
 */
export class ArchiveCache {
  readonly #keep: number;

  constructor(keep: number) {
    this.#keep = keep;
  }

  /** Puts the commit's archive at `targetPath`; `write` makes it when it is not there. */
  async provide(
    gitDir: string,
    commit: string,
    targetPath: string,
    write: (path: string) => Promise<void>,
  ): Promise<void> {
    const folder = join(gitDir, 'berth-archives');
    const cached = join(folder, `${commit}.tar`);
    if (!(await stat(cached).catch(() => null))) {
      await mkdir(folder, { recursive: true });
      await write(cached);
      await this.#trim(folder, cached);
    }
    const now = new Date();
    await utimes(cached, now, now).catch(() => undefined);
    const aside = `${targetPath}.${randomBytes(6).toString('hex')}`;
    try {
      await place(cached, aside);
    } catch {
      // Another deployment has just pushed it out of the cache.
      await write(aside);
    }
    await rename(aside, targetPath);
    // A rename between two links of one file does nothing, so the other name may still be there.
    await rm(aside, { force: true });
  }

  async #trim(folder: string, newest: string): Promise<void> {
    const files = await Promise.all(
      (await readdir(folder)).map(async (name) => {
        const path = join(folder, name);
        return { path, time: (await stat(path).catch(() => null))?.mtimeMs ?? 0 };
      }),
    );
    files.sort((a, b) => b.time - a.time);
    for (const { path } of files.slice(this.#keep)) if (path !== newest) await rm(path, { force: true });
  }
}

/** A second link costs nothing; another file system needs a copy. */
async function place(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw error;
    await copyFile(from, to);
  }
}
