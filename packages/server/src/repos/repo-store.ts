import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isId } from '../domain/ids.ts';
import { RepoError } from '../domain/ports/repos.ts';
import { runGit } from './git-process.ts';
import { looseCommit } from './loose-commit.ts';

/** Commits under it live for ever; clients neither see nor write it. */
export const keptRefs = 'refs/berth/commits';

const configFile = '[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n';
const staleLockMs = 60_000;
const staleMs = 60 * 60 * 1000;

/** The directories of the bare repositories: made whole or not at all, by a rename. */
export class RepoStore {
  readonly root: string;

  constructor(root: string) {
    this.root = root;
  }

  /** The id is checked here, once, because every path of a repository comes from it. */
  dir(agentId: string): string {
    if (!isId(agentId)) throw new RepoError('This is not the id of an agent.');
    return join(this.root, `${agentId}.git`);
  }

  async exists(agentId: string): Promise<boolean> {
    return (await stat(join(this.dir(agentId), 'HEAD')).catch(() => null)) !== null;
  }

  /**
   * Makes the repository in a directory aside, lets `fill` write into it, and renames it into place. Nothing happens
   * when it is there already. What a crash leaves aside is removed by `sweep`.
   */
  async make(agentId: string, fill: (dir: string) => Promise<void>): Promise<void> {
    if (await this.exists(agentId)) return;
    const aside = join(this.root, `.new-${randomBytes(9).toString('hex')}`);
    try {
      // The layout of gitrepository-layout, by hand: it saves a process for each new agent.
      await mkdir(join(aside, 'objects', 'info'), { recursive: true, mode: 0o700 });
      await mkdir(join(aside, 'objects', 'pack'));
      await mkdir(join(aside, 'refs', 'heads'), { recursive: true });
      await mkdir(join(aside, 'info'));
      await writeFile(join(aside, 'config'), configFile);
      await writeFile(join(aside, 'HEAD'), 'ref: refs/heads/main\n');
      await fill(aside);
      await rename(aside, this.dir(agentId));
    } catch (error) {
      await rm(aside, { recursive: true, force: true });
      // Another call was faster: its repository is as good as ours.
      if (await this.exists(agentId)) return;
      throw error;
    }
  }

  /**
   * The rename takes it away at once; the deletion of many small files may take its time, and fail in the middle. Then the
   * next call goes on, by the name that tells whose it was.
   */
  async remove(agentId: string): Promise<void> {
    const mine = `.old-${agentId.replaceAll('-', '')}`;
    try {
      await rename(this.dir(agentId), join(this.root, `${mine}${randomBytes(9).toString('hex')}`));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    for (const name of await readdir(this.root).catch(() => []))
      if (name.startsWith(mine))
        await rm(join(this.root, name), { recursive: true, force: true, maxRetries: 3 });
  }

  /** Removes what crashed calls left aside. */
  async sweep(): Promise<void> {
    for (const name of await readdir(this.root).catch(() => [])) {
      if (!/^\.(new|old)-[0-9a-f]+$/.test(name)) continue;
      const path = join(this.root, name);
      const made = await stat(path).catch(() => null);
      if (made && Date.now() - made.mtimeMs > staleMs) await rm(path, { recursive: true, force: true });
    }
  }

  /**
   * Removes lock files of git processes that were killed; git itself would fail on them for ever. It holds locks on
   * refs for moments only, and one on the shallow list during a fetch, of which there is one at a time.
   */
  async removeStaleLocks(agentId: string): Promise<void> {
    const dir = this.dir(agentId);
    const names = await readdir(join(dir, 'refs'), { recursive: true }).catch(() => []);
    const locks = names.filter((name) => name.endsWith('.lock')).map((name) => join('refs', name));
    for (const name of ['HEAD.lock', 'packed-refs.lock', 'shallow.lock', 'config.lock', ...locks]) {
      const path = join(dir, name);
      const made = await stat(path).catch(() => null);
      if (made && Date.now() - made.mtimeMs > staleLockMs) await rm(path, { force: true });
    }
  }

  /** The commit that a full ref or object name stands for, or null. */
  async commitOf(agentId: string, name: string): Promise<string | null> {
    const gitDir = this.dir(agentId);
    const loose = await looseCommit(gitDir, name);
    if (loose !== undefined) return loose;
    const args = ['rev-parse', '--verify', '--quiet', '--end-of-options', `${name}^{commit}`];
    const result = await runGit(args, { gitDir, timeoutMs: 20_000 });
    const commit = result.stdout.toString('latin1').trim();
    return result.code === 0 && /^[0-9a-f]{40}$/.test(commit) ? commit : null;
  }

  /** Moves a ref only from `oldId` (all zeros: it must not exist; null: whatever it is). False: it stood elsewhere. */
  async moveRef(agentId: string, ref: string, newId: string, oldId: string | null): Promise<boolean> {
    const command = /^0+$/.test(newId) ? ['-d', ref] : [ref, newId];
    const args = ['update-ref', ...command, ...(oldId === null ? [] : [oldId])];
    const result = await runGit(args, { gitDir: this.dir(agentId), timeoutMs: 20_000 });
    return result.code === 0;
  }
}
